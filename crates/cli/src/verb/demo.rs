//! `tidewire demo [FILE]`: the main job on one machine, without privileges. One real file crosses one emulated lossy link
//! three times, between real sockets on loopback: by retransmission, with a block code, and with Tidewire's default.
//!
//! Everything shown is measured in the run itself: time and wire bytes at the sender, in-order delay at the receiver, and
//! the hash of the file that arrived.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tidewire::{Connection, Endpoint, Profile, new_secret};
use tidewire_lab::proxy::Proxy;
use tidewire_proto::profile::{ARQ, STREAM, block};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction;

use crate::chart::{Curve, svg, terminal};
use crate::exit::{Exit, Failure, OrExit};
use crate::options::Output;
use crate::report::{Console, Event, Summary, rate};
use crate::session::{self, CLOSE_WAIT, DONE, Role};
use crate::transfer::{self, Destination, Found, scan};

use super::send::send_over;

/// The link: what a good LTE connection looks like in a bad place.
const LINK: [(Direction, &str, &str); 3] = [
    (Direction::Both, "rate", "25mbit"),
    (Direction::Both, "rtt", "60ms"),
    (Direction::Forward, "loss", "gilbert:10%,4"),
];
const LINK_IN_WORDS: &str = "25 Mbit/s, 60 ms RTT, 10 % loss in bursts of 4";
/// The same losses in each of the three runs and on each machine.
const SEED: u64 = 2;
/// The runs: name, and profile in words.
const RUNS: [(&str, &str, Profile); 3] = [
    ("ARQ (retransmission)", "arq", ARQ),
    ("block code 32+8", "block:32,8", block(32, 8)),
    ("Tidewire (default)", "stream", STREAM),
];
/// Bytes of the file when none is given: five seconds of the link.
const GENERATED: usize = 12_000_000;
/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to send; without it, 12 MB that cannot be compressed
    file: Option<PathBuf>,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", default_value = "tidewire-demo.svg")]
    svg: PathBuf,
    /// Threads that code blocks beside the one that sends and receives, 0 to 64
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    workers: u16,
    #[command(flatten)]
    pub(super) output: Output,
}

/// What one run measured.
struct Run {
    name: &'static str,
    summary: Summary,
    hash_ok: bool,
    curve: Curve,
}

/// Runs all three and shows what came of them.
///
/// # Errors
/// [`Exit::LocalIo`] for a file that cannot be read, [`Exit::Integrity`] when one arrived wrong.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let scratch = tempfile::Builder::new().prefix("tidewire-demo-").tempdir().or_exit(Exit::LocalIo)?;
    let file = match &args.file {
        Some(file) => file.clone(),
        None => generate(scratch.path()).or_exit(Exit::LocalIo)?,
    };
    let found = scan(std::slice::from_ref(&file)).or_exit(Exit::Usage)?;
    if let Some(failure) = found.failures.first() {
        return Err(Failure::message(Exit::LocalIo, failure));
    }
    if found.files != 1 || found.sources.len() != 1 || found.bytes == 0 {
        return Err(Failure::message(Exit::Usage, "demo sends one file that is not empty: tidewire demo FILE"));
    }
    let hash = hash(&file).or_exit(Exit::LocalIo)?;
    console.say(&format!("{} over {LINK_IN_WORDS}, three times", indicatif::DecimalBytes(found.bytes)));
    let mut runs = Vec::new();
    for (name, text, profile) in RUNS {
        let into = tempfile::tempdir_in(scratch.path()).or_exit(Exit::LocalIo)?;
        let mut config = tidewire::Config::default();
        (config.profile, config.workers) = (profile, args.workers);
        let mut run = one(name, config, &found, into.path(), &console).await?;
        let arrived = into.path().join(found.sources[0].name.as_str());
        run.hash_ok = self::hash(&arrived).is_ok_and(|arrived| arrived == hash);
        let Run { hash_ok, summary, .. } = &run;
        console.event(&Event::Run { name, profile: text, hash_ok: *hash_ok, summary });
        runs.push(run);
    }
    show(&runs, &args, &console)?;
    if runs.iter().all(|run| run.hash_ok) {
        Ok(())
    } else {
        Err(Failure::message(Exit::Integrity, "a file arrived wrong"))
    }
}

/// One run: receiver, link and sender, each on sockets of its own.
async fn one(
    name: &'static str,
    config: tidewire::Config,
    found: &Found,
    into: &Path,
    console: &Console,
) -> Result<Run, Failure> {
    let secret = new_secret().or_exit(Exit::Other)?;
    let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
    let destination = Destination::open(into).or_exit(Exit::LocalIo)?;
    let far = Endpoint::bind(loopback, secret.clone(), config.clone()).await.or_exit(Exit::LocalIo)?;
    let proxy = Proxy::start(loopback, far.local_addr(), &link()).or_exit(Exit::LocalIo)?;

    let begun = Instant::now();
    let receiver = async {
        let Some(connection) = far.accept().await else { return Err(Failure::message(Exit::Other, "no connection")) };
        let Some(stream) = connection.accept().await else { return Err(Failure::message(Exit::Other, "no stream")) };
        transfer::receive(stream, &destination, None, &|_| {}).await.or_exit(Exit::Other)?;
        let _ = tokio::time::timeout(CLOSE_WAIT, connection.closed()).await;
        Ok(connection)
    };
    let sender = async {
        let (near, connection) =
            session::connect_to(proxy.address(), secret.clone().into(), None, config, console).await?;
        let outcome = send_over(&connection, found, console, name).await?;
        let elapsed = begun.elapsed();
        let stats = connection.stats();
        connection.close(DONE, "");
        session::close(&near).await;
        Ok((session::summary(&stats, Role::Sender, outcome.bytes, elapsed), outcome))
    };
    let (connection, (mut summary, outcome)): (Connection, _) = tokio::try_join!(receiver, sender)?;
    super::send::judge(&outcome)?;
    let stats = connection.stats();
    let received = session::summary(&stats, Role::Receiver, outcome.bytes, begun.elapsed());
    // Delay and ways of delivery are known where the data arrives.
    (summary.symbols, summary.delay_ms) = (received.symbols, received.delay_ms);
    let curve = Curve { label: name.into(), delay: session::delays(&stats) };
    session::close(&far).await;
    proxy.stop().or_exit(Exit::Other)?;
    Ok(Run { name, summary, hash_ok: false, curve })
}

/// The emulated link, the same for each run.
fn link() -> DuplexConfig {
    let mut config = DuplexConfig::default();
    for (direction, key, text) in LINK {
        config.set(direction, key, text, Path::new("")).unwrap_or_else(|error| unreachable!("{key}={text}: {error}"));
    }
    config.set_seed(SEED);
    config
}

fn show(runs: &[Run], args: &Args, console: &Console) -> Result<(), Failure> {
    let curves: Vec<Curve> = runs.iter().map(|run| run.curve.clone()).collect();
    std::fs::write(&args.svg, svg::draw(&curves, LINK_IN_WORDS, "source symbols")).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}; try --svg FILE", args.svg.display()))
    })?;
    if console.json() {
        // The default is what the demo is about; the other two stand in their own lines.
        runs.iter().last().into_iter().for_each(|run| console.summary(&run.summary));
        return Ok(());
    }
    let picture = terminal::draw(&curves, terminal::Style::from_environment());
    // A reader that goes away has seen enough.
    let _ = writeln!(std::io::stdout().lock(), "\n{}\n{picture}", table(runs));
    console.say(&format!("picture: {}", args.svg.display()));
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
            if *hash_ok { "ok" } else { "WRONG" },
        ));
    }
    out
}

/// Writes a file that no compression makes smaller: the output stream of a hash.
fn generate(folder: &Path) -> std::io::Result<PathBuf> {
    let path = folder.join("demo.bin");
    let mut bytes = vec![0; GENERATED];
    blake3::Hasher::new().update(b"tidewire demo").finalize_xof().fill(&mut bytes);
    std::fs::write(&path, bytes)?;
    Ok(path)
}

fn hash(path: &Path) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    Ok(hasher.finalize())
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
}
