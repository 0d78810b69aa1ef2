//! `tidewire demo [FILE]`: the effect on one machine, without privileges. Data crosses one emulated lossy
//! link three times, between real sockets on loopback: with retransmission, with a block code, and with
//! Tidewire's default.
//!
//! The demo has two parts: records of an application that uses half of the link ([`records`]), then a file
//! that takes all of it ([`file`]). With `--senders` it shows instead how several connections share a link
//! ([`shares`]). All figures are measured in the run itself: time and wire bytes at the
//! sender, in-order delay at the receiver, and the hash of the file that arrived.

mod file;
mod records;
mod shares;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidewire::{Config, Connection, Endpoint, Profile, RateControl, Secret, new_secret};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::options::Output;
use tidewire_command::report::{Console, Summary, rate};
use tidewire_command::stdout;
use tidewire_figures::chart::{Curve, svg, terminal};
use tidewire_proto::profile::{ARQ, STREAM, block};
use tidewire_proxy::Proxy;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction;

use crate::session;
use crate::watch::WatchArgs;

/// The link: a good LTE connection in a bad place.
const LINK: [(Direction, &str, &str); 3] = [
    (Direction::Both, "rate", "25mbit"),
    (Direction::Both, "rtt", "60ms"),
    (Direction::Forward, "loss", "gilbert:10%,4"),
];
const LINK_IN_WORDS: &str = "25 Mbit/s, 60 ms RTT, 10 % loss in bursts of 4";
/// The same losses in each run and on each machine.
const SEED: u64 = 2;
/// The runs of each part: name, and profile in words.
const RUNS: [(&str, &str, Profile); 3] = [
    ("retransmission", "arq", ARQ),
    ("block code 32+8", "block:32,8", block(32, 8)),
    ("Tidewire (default)", "stream", STREAM),
];

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to send; without it, 12 MB that cannot be compressed
    file: Option<PathBuf>,
    /// The picture of the first part; that of the second is written beside it, with `-file` in its name
    #[arg(long, value_name = "FILE", default_value = "tidewire-demo.svg")]
    svg: PathBuf,
    /// Show instead how so many senders share one link, 2 to 9: a newcomer begins every four seconds
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u8).range(2..=9))]
    senders: Option<u8>,
    /// Rate control of the senders, as for the other verbs [example: share]
    #[arg(long, value_name = "NAME", requires = "senders")]
    rate_control: Option<RateControl>,
    /// Threads that code blocks beside the one that sends and receives, 0 to 64
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    workers: u16,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
}

/// One of the two experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Records,
    File,
}

/// The result of one run, as `--json` reports it.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "run")]
struct Run {
    part: Part,
    name: &'static str,
    /// The profile, in the form that `--profile` takes.
    profile: &'static str,
    /// Whether the received file has the hash of the sent file.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_ok: Option<bool>,
    summary: Summary,
    #[serde(skip)]
    curve: Curve,
}

struct Measured {
    summary: Summary,
    curve: tidewire_figures::Distribution,
    hash_ok: Option<bool>,
}

/// Runs both parts and shows the results.
///
/// # Errors
/// [`Exit::LocalIo`] for a file that cannot be read, [`Exit::Integrity`] when one arrived wrong.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let config = Config::builder().workers(args.workers).build().or_exit(Exit::Usage)?;
    let (config, _watching) = args.watch.begin("demo", config, &console)?;
    if let Some(senders) = args.senders {
        let control = args.rate_control.unwrap_or(config.rate_control());
        let config = config.to_builder().rate_control(control).build().or_exit(Exit::Usage)?;
        return shares::run(senders, config, &args.svg, &console).await;
    }
    let file = file::Sent::prepare(args.file.as_deref())?;
    // The default, the last of each part, is what the demo is about; the other runs have lines of their own.
    let mut latest = Summary::default();
    let ended = unless_interrupted(compare(&args, &file, &config, &console, &mut latest)).await;
    if console.json() { console.conclude(&latest, ended) } else { ended }
}

/// Runs both parts. `latest` becomes the summary of each run.
async fn compare(
    args: &Args,
    file: &file::Sent,
    config: &Config,
    console: &Console,
    latest: &mut Summary,
) -> Result<(), Failure> {
    console.say(&format!("{LINK_IN_WORDS}; three runs each of two parts"));
    console.say(&format!("1. {}", records::IN_WORDS));
    let mut first = Vec::new();
    for (name, profile, value) in RUNS {
        let measured = records::run(with(value, config)?).await?;
        *latest = measured.summary.clone();
        first.push(report(Part::Records, name, profile, measured, console));
    }
    show(&first, &args.svg, &records::caption(), console)?;
    console.say(&format!("2. {} as fast as the link takes it", file.in_words()));
    let mut second = Vec::new();
    for (name, profile, value) in RUNS {
        let measured = file.send(with(value, config)?, name, console).await?;
        *latest = measured.summary.clone();
        second.push(report(Part::File, name, profile, measured, console));
    }
    show(&second, &beside(&args.svg), &file::caption(), console)?;
    if second.iter().all(|run| run.hash_ok != Some(false)) {
        Ok(())
    } else {
        Err(Failure::message(Exit::Integrity, "a file arrived wrong"))
    }
}

fn with(profile: Profile, config: &Config) -> Result<Config, Failure> {
    config.to_builder().profile(profile).build().or_exit(Exit::Usage)
}

fn report(part: Part, name: &'static str, profile: &'static str, measured: Measured, console: &Console) -> Run {
    let Measured { summary, curve, hash_ok } = measured;
    let run = Run { part, name, profile, hash_ok, summary, curve: Curve { label: name.into(), delay: curve } };
    console.event(&run);
    run
}

/// Two endpoints with the emulated link between them.
struct Ends {
    secret: Secret,
    far: Endpoint,
    proxy: Proxy,
}

impl Ends {
    async fn start(config: Config) -> Result<Self, Failure> {
        Self::over(&link(), config).await
    }

    async fn over(link: &DuplexConfig, config: Config) -> Result<Self, Failure> {
        let secret = new_secret().or_exit(Exit::Other)?;
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let far = Endpoint::bind(loopback, secret.clone(), config).or_exit(Exit::LocalIo)?;
        let proxy = Proxy::start(loopback, far.local_addr(), link).or_exit(Exit::LocalIo)?;
        Ok(Self { secret, far, proxy })
    }

    async fn accept(&self) -> Result<Connection, Failure> {
        self.far.accept().await.or_exit(Exit::Other)
    }

    async fn connect(&self, config: Config, console: &Console) -> Result<(Endpoint, Connection), Failure> {
        let (addresses, credentials) = ([self.proxy.address()], self.secret.clone().into());
        session::connect_first(&addresses, None, &credentials, &config, console).await
    }

    async fn stop(self) -> Result<(), Failure> {
        session::close(&self.far).await;
        self.proxy.stop().or_exit(Exit::Other)?;
        Ok(())
    }
}

/// The emulated link, the same for each run.
fn link() -> DuplexConfig {
    configured(&LINK)
}

fn configured(settings: &[(Direction, &str, &str)]) -> DuplexConfig {
    let mut config = DuplexConfig::default();
    for (direction, key, text) in settings {
        config.set(*direction, key, text, Path::new("")).unwrap_or_else(|error| unreachable!("{key}={text}: {error}"));
    }
    config.set_seed(SEED);
    config
}

/// The path of the second picture.
fn beside(svg: &Path) -> PathBuf {
    let stem = svg.file_stem().unwrap_or_default().to_string_lossy();
    let extension = svg.extension().map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    svg.with_file_name(format!("{stem}-file{extension}"))
}

/// Writes the picture; for people, also the table and the picture in the terminal.
fn show(runs: &[Run], path: &Path, caption: &svg::Caption<'_>, console: &Console) -> Result<(), Failure> {
    let curves: Vec<Curve> = runs.iter().map(|run| run.curve.clone()).collect();
    std::fs::write(path, svg::draw(&curves, caption)).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}; try --svg FILE", path.display()))
    })?;
    if !console.json() {
        let picture = terminal::draw(&curves, terminal::Style::from_environment());
        stdout::write_line(&format!("\n{}\n{picture}\n{}\n", table(runs), caption.see));
        console.say(&format!("picture: {}", path.display()));
    }
    Ok(())
}

fn table(runs: &[Run]) -> String {
    let mut out = format!(
        "{:<22} {:>12} {:>27} {:>9}  {}\n{:<22} {:>12} {:>9}{:>9}{:>9} {:>9}\n",
        "", "goodput", "in-order delay (ms)   ", "overhead", "hash", "", "", "mean", "p50", "p99", ""
    );
    for Run { name, summary, hash_ok, .. } in runs {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
        let delay = summary.delay_ms;
        let overhead = summary.overhead.map_or_else(|| "-".into(), |overhead| format!("{:.1} %", 100.0 * overhead));
        out.push_str(&format!(
            "{name:<22} {:>12} {:>9}{:>9}{:>9} {overhead:>9}  {}\n",
            rate(summary.goodput_bps),
            ms(delay.mean),
            ms(delay.p50),
            ms(delay.p99),
            match hash_ok {
                Some(true) => "ok",
                Some(false) => "WRONG",
                None => "",
            },
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_link_and_profiles_are_written_right() {
        assert_eq!(link().rtt(), std::time::Duration::from_millis(60));
        assert_ne!(link().forward.loss, link().back.loss);
        assert!(RUNS.iter().all(|(_, text, profile)| text.parse() == Ok(*profile)));
    }

    #[test]
    fn the_second_picture_lies_beside_the_first() {
        assert_eq!(beside(Path::new("a/demo.svg")), Path::new("a/demo-file.svg"));
        assert_eq!(beside(Path::new("demo")), Path::new("demo-file"));
    }
}
