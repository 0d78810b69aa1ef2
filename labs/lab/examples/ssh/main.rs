//! Measures ssh over the lab's lossy link: plain, through `tidewire forward -W`, and beside mosh.
//!
//! Keys are typed at a terminal and come back as the far host's echo. Then many small files are copied. It
//! needs root, and Debian's packages openssh-server, mosh and rsync. `docs/ssh.md` has its tables and the
//! command. Arguments: the `tidewire` to measure, how many seeds, how many keys, and how many files. The exit
//! code is 8 if a key over `tidewire` is slower than the goal.

mod keys;
mod stage;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tidewire_sim::scenario::Scenario;

use keys::{Typed, typed};
use stage::{REPEATED, Stage};

/// The round trip of the link.
const RTT_MS: u64 = 60;
/// What p99 of an echo over `tidewire` may take beyond the round trip: asked.
const GOAL_MS: u64 = 30;
/// Losses of the rows, the same in both directions.
const LOSSES: [&str; 2] = ["0%", "10%"];

/// A way for a terminal to the far host.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Coded,
    Repeated,
    Mosh,
}

/// A way for many files to the far host.
#[derive(Clone, Copy)]
enum Copy {
    Plain,
    Coded,
    Send,
}

fn main() -> anyhow::Result<ExitCode> {
    let argument = |index: usize| std::env::args().nth(index);
    let program = argument(1).context("name the `tidewire` to measure: ssh PROGRAM [SEEDS] [KEYS] [FILES]")?;
    let program = Path::new(&program).canonicalize().with_context(|| program.clone())?;
    let number = |index, default| argument(index).map_or(Ok(default), |text| text.parse::<u64>());
    let (seeds, keys, files) = (number(2, 3)?, number(3, 300)?, number(4, 1_000)?);
    println!("| loss | keys over | until the first key, s | p50 ms | p95 ms | p99 ms | max ms | |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut holds = true;
    for loss in LOSSES {
        for way in [Way::Plain, Way::Coded, Way::Repeated, Way::Mosh] {
            let runs = (1..=seeds).map(|seed| echo(way, &stage(loss, seed, &program)?, keys as usize));
            holds &= report(loss, way, &runs.collect::<anyhow::Result<Vec<_>>>()?);
        }
    }
    println!("\n| loss | {files} files by | s, each seed |\n| --- | --- | --- |");
    for loss in LOSSES {
        for copy in [Copy::Plain, Copy::Coded, Copy::Send] {
            let runs = (1..=seeds).map(|seed| copied(copy, &stage(loss, seed, &program)?, files));
            let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
            println!("| {loss} | {} | {} |", copy.name(), seconds(runs.into_iter()));
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(8) })
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Plain => "ssh".into(),
            Self::Coded => "ssh through `forward -W`".into(),
            Self::Repeated => format!("the same with `{REPEATED}`"),
            Self::Mosh => "mosh, without prediction".into(),
        }
    }
}

impl Copy {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "rsync -e ssh",
            Self::Coded => "rsync, ssh through `forward -W`",
            Self::Send => "`tidewire send`",
        }
    }
}

/// Two hosts and the link between them: 25 Mbit/s, and a queue of one round trip.
fn stage(loss: &str, seed: u64, program: &Path) -> anyhow::Result<Stage> {
    let text = format!(
        "seed = {seed}\n[link]\nrate = \"25mbit\"\nrtt = \"{RTT_MS}ms\"\nqueue = \"{RTT_MS}ms\"\n\
         [forward]\nloss = \"{loss}\"\n[back]\nloss = \"{loss}\"\n"
    );
    Stage::start(&Scenario::parse(&text, Path::new("ssh.toml"))?.link, program)
}

/// Types keys into a terminal of the far host.
fn echo(way: Way, stage: &Stage, keys: usize) -> anyhow::Result<Typed> {
    let far = format!("stty raw -echo; printf {}; exec cat", keys::READY);
    let mut command = match way {
        Way::Plain => stage.ssh("plain"),
        Way::Coded => stage.ssh("coded"),
        Way::Repeated => stage.ssh("repeated"),
        Way::Mosh => stage.mosh("plain"),
    };
    match way {
        Way::Mosh => command.args(["--", "sh", "-c", &far]),
        Way::Plain | Way::Coded | Way::Repeated => command.args(["-tt", &far]),
    };
    let typed = typed(&mut command, keys).with_context(|| way.name())?;
    let unread = stage.unread()?;
    if unread > 0 {
        bail!("{}: the emulator did not read {unread} packets in time", way.name());
    }
    eprintln!("{}: {:?}, {} of {keys} keys came back", way.name(), typed.start, typed.delays.len());
    Ok(typed)
}

/// Prints a row. Returns whether it keeps the goal, if it has one.
fn report(loss: &str, way: Way, runs: &[Typed]) -> bool {
    let mut delays: Vec<Duration> = runs.iter().flat_map(|run| run.delays.iter().copied()).collect();
    delays.sort();
    let quantile = |q: f64| tidewire_figures::quantile(&delays, q).unwrap_or(Duration::MAX);
    let holds = quantile(0.99) <= Duration::from_millis(RTT_MS + GOAL_MS);
    let mark = match (way, holds) {
        (Way::Coded | Way::Repeated, true) => "ok",
        (Way::Coded | Way::Repeated, false) => "**MISSED**",
        _ => "",
    };
    let quantiles: Vec<String> =
        [0.5, 0.95, 0.99, 1.0].iter().map(|q| format!("{:.0}", quantile(*q).as_secs_f64() * 1e3)).collect();
    let starts = seconds(runs.iter().map(|run| run.start));
    println!("| {loss} | {} | {starts} | {} | {mark} |", way.name(), quantiles.join(" | "));
    !matches!(way, Way::Coded | Way::Repeated) || holds
}

/// Copies a tree of small files, and compares it.
fn copied(copy: Copy, stage: &Stage, files: u64) -> anyhow::Result<Duration> {
    let (from, into) = (stage.tree(files)?, stage.path("into"));
    let config = stage.path("config");
    let rsync = |host: &str| {
        let mut command = stage.near("rsync");
        command.args(["-a", "-e", &format!("ssh -F {config}"), &from, &format!("{host}:{into}/")]);
        command
    };
    let mut command = match copy {
        Copy::Plain => rsync("plain"),
        Copy::Coded => rsync("coded"),
        Copy::Send => stage.send(&from, &into),
    };
    let begun = Instant::now();
    run(&mut command)?;
    let took = begun.elapsed();
    run(Command::new("diff").args(["-r", &from, &format!("{into}/tree")])).context("the copy differs")?;
    eprintln!("{}: {took:.2?}", copy.name());
    Ok(took)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn seconds(times: impl Iterator<Item = Duration>) -> String {
    times.map(|time| format!("{:.1}", time.as_secs_f64())).collect::<Vec<_>>().join(" ")
}
