//! Runs of `bench` over the emulated link, with and without `--record` and `--dashboard`.
//!
//! A shell around each end prints the processor time that it took, because a process that has ended cannot
//! be asked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::emulator::Emulator;
use super::super::process::{Line, Process};
use super::{Row, browser};

/// A run may take this much longer than planned.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length in seconds of the recording whose size is measured. The goals are stated for ten minutes, and the
/// time to open a file does not grow in proportion.
const RECORDED: u64 = 600;
/// How often a page is opened. The figure is the median.
const OPENINGS: usize = 5;

/// What one run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Mbit/s of records.
    pub goodput: f64,
    /// p50 and p99 of the in-order delay from the third second on, in ms.
    pub delay: [f64; 2],
    /// Processor time of the sending and the receiving end, in percent of a core.
    pub processor: [f64; 2],
}

impl Figures {
    /// The figures in one line, printed after each run.
    pub fn line(&self) -> String {
        let Self { goodput, delay: [p50, p99], processor: [near, far] } = self;
        format!("{goodput:.2} Mbit/s, p50 / p99 {p50:.2} / {p99:.2} ms, processor {near:.1} / {far:.1} %")
    }
}

/// A recording of [`RECORDED`] seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Megabytes of the files of the sending and the receiving end.
    pub megabytes: [f64; 2],
    /// Seconds until the page had read all of each and drawn, from when it was asked for.
    pub open_seconds: [f64; 2],
}

impl Size {
    /// The figures in one line.
    pub fn line(&self) -> String {
        format!("{:.2?} MB, opened in {:.2?} s", self.megabytes, self.open_seconds)
    }
}

/// A folder for the recordings; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(seed: u64) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("tidewire-recording-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that remain in the temporary folder do no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a row once.
pub fn run(row: &Row, seed: u64, seconds: u64, is_watched: bool, binary: &Path) -> Result<Figures, String> {
    let folder = Folder::new(seed)?;
    let watched = |name| match is_watched {
        true => vec!["--record".to_owned(), folder.file(name), "--dashboard".to_owned()],
        false => Vec::new(),
    };
    let link = ["--rate", "100mbit", "--rtt", "40ms", "--loss", "5%", "--seed", &seed.to_string()].map(String::from);
    bench(row.bitrate, &link, seconds, [watched("near.rec"), watched("far.rec")], binary)
}

/// Records [`RECORDED`] seconds at 25 Mbit/s, and opens the recordings.
pub fn size(binary: &Path) -> Result<Size, String> {
    let folder = Folder::new(0)?;
    let files = ["near.rec", "far.rec"].map(|name| folder.file(name));
    let recorded = files.clone().map(|file| vec!["--record".to_owned(), file]);
    let link = ["--rate", "50mbit", "--rtt", "40ms", "--loss", "5%"].map(String::from);
    bench(Some("25mbit"), &link, RECORDED, recorded, binary)?;
    look(&files, binary)
}

/// The same for the recordings of a simulated flow: an example of the command writes them in some seconds.
pub fn page(binary: &Path) -> Result<Size, String> {
    let folder = Folder::new(0)?;
    let files = ["near.rec", "far.rec"].map(|name| folder.file(name));
    let example = binary.with_file_name("examples").join("long_recording");
    let written = Command::new(&example).args(&files).arg(RECORDED.to_string()).status();
    match written {
        Ok(status) if status.success() => look(&files, binary),
        Ok(status) => Err(format!("{} ended with {status}", example.display())),
        Err(error) => Err(format!("cannot start {}: {error}", example.display())),
    }
}

/// Measures the files of both ends.
fn look(files: &[String; 2], binary: &Path) -> Result<Size, String> {
    let (mut megabytes, mut open_seconds) = ([0.0; 2], [0.0; 2]);
    for (index, file) in files.iter().enumerate() {
        let bytes = std::fs::metadata(file).map_err(|e| format!("{file}: {e}"))?.len();
        megabytes[index] = bytes as f64 / 1e6;
        open_seconds[index] = open(file, binary)?;
    }
    Ok(Size { megabytes, open_seconds })
}

/// Seconds until a browser has read all of a recording and drawn: the median of [`OPENINGS`].
fn open(file: &str, binary: &Path) -> Result<f64, String> {
    let once = |_| {
        let deadline = Instant::now() + PATIENCE;
        let mut dash = Process::start("dash", Command::new(binary).args(["dash", "--json", file]))?;
        let url = dash.wait_for("dashboard", deadline)?.text("/url")?.to_owned();
        browser::seconds_to_end(&url, deadline)
    };
    let seconds: Vec<f64> = (0..OPENINGS).map(once).collect::<Result<_, String>>()?;
    Ok(tidewire_figures::median(seconds))
}

/// Runs `bench` with these options of the sending and the receiving end.
fn bench(
    bitrate: Option<&str>,
    link: &[String],
    seconds: u64,
    [near, far]: [Vec<String>; 2],
    binary: &Path,
) -> Result<Figures, String> {
    let deadline = Instant::now() + Duration::from_secs(seconds) + PATIENCE;
    let mut serve = timed(binary);
    serve.args(["bench", "-s", "--once", "--json", "--listen", "127.0.0.1:0"]).args(far);
    let mut server = Process::start("the server", &mut serve)?;
    let printed = server.wait_for("link", deadline)?.text("/link")?.to_owned();
    let options: Vec<&str> = link.iter().map(String::as_str).collect();
    let (emulator, through) = Emulator::start(binary, &options, &printed, deadline)?;
    let mut client = timed(binary);
    client.args(["bench", "--json", "-c", &through, "--time", &seconds.to_string()]).args(near);
    bitrate.into_iter().for_each(|bitrate| _ = client.args(["--bitrate", bitrate]));
    let client = Process::start("the client", &mut client)?.finish(0, deadline)?;
    let server = server.finish(0, deadline)?;
    emulator.end(deadline)?;
    let summary = client.iter().rfind(|line| line.is("summary")).ok_or("the client printed no summary")?;
    let delay = |name: &str| summary.number(&format!("/records/steady_delay_ms/{name}"));
    let processor = |lines: &[Line]| Ok::<_, String>(100.0 * processor_seconds(lines)? / seconds as f64);
    Ok(Figures {
        goodput: summary.number("/goodput_bps")? / 1e6,
        delay: [delay("p50")?, delay("p99")?],
        processor: [processor(&client)?, processor(&server)?],
    })
}

/// `binary` in a shell that afterwards prints the processor times of itself and of `binary`.
fn timed(binary: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; code=$?; times; exit $code"]).arg(binary);
    shell
}

/// Processor time of the command in the shell, from the last line of `times`: `0m1.50s 0m0.25s`, in user mode
/// and in the kernel.
fn processor_seconds(lines: &[Line]) -> Result<f64, String> {
    let last = lines.last().map(|line| &line.event);
    let Some(Value::String(text)) = last else { return Err(format!("the shell printed no times: {last:?}")) };
    let seconds = |part: &str| {
        let (minutes, seconds) = part.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let parts: Option<Vec<f64>> = text.split_whitespace().map(seconds).collect();
    parts.map(|parts| parts.iter().sum()).ok_or_else(|| format!("the shell printed no times: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_tells_the_processor_time_of_its_command() {
        let deadline = Instant::now() + PATIENCE;
        let mut command = timed(Path::new("sh"));
        command.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3"]);
        let lines = Process::start("a script", &mut command).unwrap().finish(3, deadline).unwrap();
        assert!((0.01..60.0).contains(&processor_seconds(&lines).unwrap()), "{lines:?}");
        let line = |text: &str| [Line { at: Instant::now(), event: Value::String(text.into()) }];
        assert_eq!(processor_seconds(&line("1m1.50s 0m0.25s")), Ok(61.75));
        assert!(processor_seconds(&line("nothing")).is_err() && processor_seconds(&[]).is_err());
    }
}
