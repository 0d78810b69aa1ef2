//! `tidewire lab link`: the link emulator as a UDP proxy, without privileges.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire_lab::proxy::{Proxy, ProxyStats};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction;

use super::{Event, counts, link_of};
use crate::exit::{Exit, Failure, OrExit};
use crate::options::Output;
use crate::report::{self, Console};
use crate::session::{self, unless_interrupted};

/// How often `--json` reports.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The link that the options begin with when no scenario is given.
const PERFECT: &str = "";

/// Arguments of `lab link`.
#[derive(Debug, clap::Args)]
pub struct LinkArgs {
    /// Scenario file to begin with; the options below override it
    scenario: Option<PathBuf>,
    /// Where senders send to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7800")]
    listen: SocketAddr,
    /// Where it goes on to
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// Where all randomness comes from
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    pub(in crate::verb) output: Output,
}

/// What the link does. Loss, reordering, duplication and corruption are of the way there; `--back-loss` and `--back-rate`
/// are of the way back.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The link")]
struct Settings {
    /// IP bits per second, each way [examples: 25mbit, trace:FILE]
    #[arg(long)]
    rate: Option<String>,
    /// Round trip [example: 60ms]
    #[arg(long)]
    rtt: Option<String>,
    /// Drop-tail limit, each way; one round trip by default [examples: 60ms, 150kB]
    #[arg(long)]
    queue: Option<String>,
    /// Random time on top of the delay, each way [example: 5ms]
    #[arg(long)]
    jitter: Option<String>,
    /// When nothing passes, each way [example: 2s..2.5s every 10s]
    #[arg(long)]
    blackout: Option<String>,
    /// Longest IP packet that passes, each way [example: 1400B]
    #[arg(long)]
    mtu: Option<String>,
    /// Loss on the way there [examples: 10%, gilbert:10%,4 (mean burst 4), trace:FILE]
    #[arg(long)]
    loss: Option<String>,
    /// Share held back on the way there, and for how long [example: 2%,3ms]
    #[arg(long)]
    reorder: Option<String>,
    /// Share that arrives twice on the way there [example: 1%]
    #[arg(long)]
    duplicate: Option<String>,
    /// Share that arrives with one byte changed on the way there [example: 0.1%]
    #[arg(long)]
    corrupt: Option<String>,
    /// Loss on the way back
    #[arg(long)]
    back_loss: Option<String>,
    /// Rate of the way back
    #[arg(long)]
    back_rate: Option<String>,
}

impl Settings {
    /// Each option with the direction and key it sets.
    fn given(&self) -> impl Iterator<Item = (&'static str, Direction, &'static str, &str)> {
        use Direction::{Back, Both, Forward};
        [
            ("--rate", Both, "rate", &self.rate),
            ("--rtt", Both, "rtt", &self.rtt),
            ("--queue", Both, "queue", &self.queue),
            ("--jitter", Both, "jitter", &self.jitter),
            ("--blackout", Both, "blackout", &self.blackout),
            ("--mtu", Both, "mtu", &self.mtu),
            ("--loss", Forward, "loss", &self.loss),
            ("--reorder", Forward, "reorder", &self.reorder),
            ("--duplicate", Forward, "duplicate", &self.duplicate),
            ("--corrupt", Forward, "corrupt", &self.corrupt),
            ("--back-loss", Back, "loss", &self.back_loss),
            ("--back-rate", Back, "rate", &self.back_rate),
        ]
        .into_iter()
        .filter_map(|(option, direction, key, value)| Some((option, direction, key, value.as_deref()?)))
    }
}

/// Runs the proxy until Ctrl-C, then says what it carried.
///
/// # Errors
/// [`Exit::Usage`] for a wrong setting, [`Exit::LocalIo`] when the port cannot be listened on; otherwise Ctrl-C's.
pub async fn run(args: Box<LinkArgs>, console: Console) -> Result<(), Failure> {
    let config = configure(&args)?;
    let target = target(&args.to)?;
    let proxy = Proxy::start(args.listen, target, &config).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {}: {error}; try another --listen", args.listen))
    })?;
    console.event(&report::Event::Listening { listening: proxy.address().to_string(), to: target.to_string() });
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
    session::quietly(ended)
}

/// The link that the scenario and the options describe.
fn configure(args: &LinkArgs) -> Result<DuplexConfig, Failure> {
    let mut config = link_of(args.scenario.as_deref(), PERFECT, args.seed)?;
    for (option, direction, key, text) in args.settings.given() {
        config
            .set(direction, key, text, Path::new(""))
            .map_err(|error| Failure::message(Exit::Usage, format_args!("{option}: {error}")))?;
    }
    Ok(config)
}

fn target(to: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::message(
            Exit::Usage,
            format_args!("--to: `{to}` is no address: {why}; write for example 127.0.0.1:7700"),
        )
    };
    let mut addresses = to.to_socket_addrs().map_err(|error| wrong(&error))?;
    addresses.next().ok_or_else(|| wrong(&"the name has none"))
}

fn tell(stats: &ProxyStats, console: &Console) {
    let (forward, back) = (counts(&stats.forward), counts(&stats.back));
    console.event(&Event::LinkStats { forward, back, clients: stats.clients });
}

fn describe(stats: &ProxyStats) -> String {
    let ProxyStats { forward, back, clients, refused } = stats;
    format!("{}\n{clients} clients, {refused} refused by the far socket", super::describe(forward, back))
}
