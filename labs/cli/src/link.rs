//! `tidewire-lab link`: the link emulator as a UDP proxy, without privileges.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire::names;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{self, quietly, unless_interrupted};
use tidewire_command::options::Output;
use tidewire_command::report::{self, Console};
use tidewire_proxy::{Proxy, ProxyStats};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction;

use crate::link_counts::{self, Event, counts};
use crate::link_of;

/// How often `--json` reports.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The scenario that the options override if none is given: a perfect link.
const PERFECT: &str = "";

/// Arguments of `tidewire-lab link`.
#[derive(Debug, clap::Args)]
pub struct LinkArgs {
    /// Scenario file to begin with; the options below override it
    scenario: Option<PathBuf>,
    /// Address and UDP port that senders send to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7800")]
    listen: SocketAddr,
    /// Host and UDP port that the link leads to
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// Seed of all random numbers, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    pub output: Output,
}

/// The link. Loss, reordering, duplication, corruption and policing apply to the direction toward `--to`.
/// `--back-loss`, `--back-rate` and `--back-police` apply to the other direction.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The link")]
struct Settings {
    /// Rate of each direction in IP bits per second [examples: 25mbit, trace:FILE]
    #[arg(long)]
    rate: Option<String>,
    /// Round-trip time without queues [example: 60ms]
    #[arg(long)]
    rtt: Option<String>,
    /// Limit of the drop-tail queue of each direction [examples: 60ms, 150kB]. The default is one round trip
    #[arg(long)]
    queue: Option<String>,
    /// Random delay added in each direction [example: 5ms]
    #[arg(long)]
    jitter: Option<String>,
    /// Times when nothing passes in either direction [example: 2s..2.5s every 10s]
    #[arg(long)]
    blackout: Option<String>,
    /// Time in which each direction transmits, in each period [example: 10ms:1ms]
    #[arg(long)]
    slot: Option<String>,
    /// Longest IP packet that passes in each direction [example: 1400B]
    #[arg(long)]
    mtu: Option<String>,
    /// Loss toward --to [examples: 10%, gilbert:10%,4 (mean burst 4), trace:FILE]
    #[arg(long)]
    loss: Option<String>,
    /// Fraction of packets held back toward --to, and for how long [example: 2%,3ms]
    #[arg(long)]
    reorder: Option<String>,
    /// Fraction of packets that arrive twice at --to [example: 1%]
    #[arg(long)]
    duplicate: Option<String>,
    /// Fraction of packets that arrive at --to with one byte changed [example: 0.1%]
    #[arg(long)]
    corrupt: Option<String>,
    /// Rate and bucket of a policer toward --to [examples: 10mbit:50kB, "10mbit:50kB after 5MB",
    /// "10mbit:50kB, 2s.. none"]
    #[arg(long)]
    police: Option<String>,
    /// Loss in the direction back from --to [example: 1%]
    #[arg(long)]
    back_loss: Option<String>,
    /// Rate of the direction back from --to [example: 1mbit]
    #[arg(long)]
    back_rate: Option<String>,
    /// Policer of the direction back from --to [example: 10mbit:50kB]
    #[arg(long)]
    back_police: Option<String>,
}

impl Settings {
    /// Returns each given option with the direction and key that it sets, and its value.
    fn given(&self) -> impl Iterator<Item = (&'static str, Direction, &'static str, &str)> {
        use Direction::{Back, Both, Forward};
        [
            ("--rate", Both, "rate", &self.rate),
            ("--rtt", Both, "rtt", &self.rtt),
            ("--queue", Both, "queue", &self.queue),
            ("--jitter", Both, "jitter", &self.jitter),
            ("--blackout", Both, "blackout", &self.blackout),
            ("--slot", Both, "slot", &self.slot),
            ("--mtu", Both, "mtu", &self.mtu),
            ("--loss", Forward, "loss", &self.loss),
            ("--reorder", Forward, "reorder", &self.reorder),
            ("--duplicate", Forward, "duplicate", &self.duplicate),
            ("--corrupt", Forward, "corrupt", &self.corrupt),
            ("--police", Forward, "police", &self.police),
            ("--back-loss", Back, "loss", &self.back_loss),
            ("--back-rate", Back, "rate", &self.back_rate),
            ("--back-police", Back, "police", &self.back_police),
        ]
        .into_iter()
        .filter_map(|(option, direction, key, value)| Some((option, direction, key, value.as_deref()?)))
    }
}

/// Runs the proxy until Ctrl-C, then reports what it carried.
///
/// # Errors
/// [`Exit::Usage`] for a wrong setting, [`Exit::LocalIo`] if the port is in use; [`Exit::Sigint`] after
/// Ctrl-C.
pub async fn run(args: Box<LinkArgs>, console: Console) -> Result<(), Failure> {
    let config = configure(&args)?;
    let target = quietly(unless_interrupted(target(args.to.clone())).await)?;
    interrupt::heed();
    let proxy = Proxy::start(args.listen, target, &config).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {}: {error}; try another --listen", args.listen))
    })?;
    let (listening, to) = (proxy.address().to_string(), target.to_string());
    console.event(&report::Event::Listening { listening, to, far: false });
    console.say(&format!("link from {} to {target}; Ctrl-C ends it", proxy.address()));
    let ended = unless_interrupted(async {
        let mut ticks = tokio::time::interval(REPORT_PERIOD);
        loop {
            ticks.tick().await;
            if !proxy.is_running() {
                return Ok(());
            }
            tell(&proxy.stats(), &console);
        }
    })
    .await;
    let stats = proxy.stop().or_exit(Exit::LocalIo)?;
    tell(&stats, &console);
    console.say(&describe(&stats));
    quietly(ended)
}

/// Builds the link from the scenario and the options.
fn configure(args: &LinkArgs) -> Result<DuplexConfig, Failure> {
    let mut config = link_of(args.scenario.as_deref(), PERFECT, args.seed)?;
    for (option, direction, key, text) in args.settings.given() {
        config
            .set(direction, key, text, Path::new(""))
            .map_err(|error| Failure::message(Exit::Usage, format_args!("{option}: {error}")))?;
    }
    config.check().map_err(|error| Failure::message(Exit::Usage, format_args!("--slot: {error}")))?;
    Ok(config)
}

async fn target(to: String) -> Result<SocketAddr, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::message(
            Exit::Usage,
            format_args!("--to: `{to}` is not an address: {why}; write for example 127.0.0.1:7700"),
        )
    };
    let name = to.clone();
    #[expect(clippy::disallowed_methods, reason = "in a thread that nobody waits for")]
    let call = move || name.to_socket_addrs().map(|mut found| found.next());
    let first = names::apart(call).await.flatten().map_err(|error| wrong(&error))?;
    first.ok_or_else(|| wrong(&"the name has no address"))
}

fn tell(stats: &ProxyStats, console: &Console) {
    let (forward, back) = (counts(&stats.forward), counts(&stats.back));
    console.event(&Event::LinkStats { forward, back, clients: stats.clients });
}

fn describe(stats: &ProxyStats) -> String {
    let ProxyStats { forward, back, clients, refused } = stats;
    format!("{}\n{clients} clients, {refused} refused by the far socket", link_counts::describe(forward, back))
}
