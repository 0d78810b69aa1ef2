//! `tidewire dash FILE...`: shows recordings of `--record` in a browser.
//!
//! Each page reads the files anew. Invariant: a file is read block by block, so memory does not grow with it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::dash::{self, Events, Recording};
use crate::exit::{Exit, Failure};
use crate::options::Output;
use crate::recording::{Item, Reader};
use crate::report::Console;
use crate::session::{self, unless_interrupted};
use crate::watch::Observed;

/// Arguments of `dash`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recordings that --record wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Address of the page. The default is a free port of this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Serves the page until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] if a file is no recording, or the port is taken.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let mut recordings: Vec<Box<dyn Recording>> = Vec::new();
    for path in args.files {
        open(&path).map_err(|reason| Failure::message(Exit::Usage, reason))?;
        recordings.push(Box::new(Kept { name: path.display().to_string(), path }));
    }
    let _serving = dash::show(args.listen, recordings, &console)?;
    session::quietly(unless_interrupted(std::future::pending()).await)
}

/// A recording in a file.
#[derive(Debug)]
struct Kept {
    name: String,
    path: PathBuf,
}

impl Recording for Kept {
    fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn events(&self) -> Result<Events, String> {
        let reader = open(&self.path)?;
        Ok(Box::new(Entries {
            reader,
            name: self.name.clone(),
            waiting: VecDeque::new(),
            items: Vec::new(),
            ended: false,
            trouble: None,
        }))
    }
}

fn open(path: &Path) -> Result<Reader<BufReader<File>>, String> {
    let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    Reader::open(BufReader::new(file)).map_err(|error| format!("cannot show {}: {error}", path.display()))
}

/// The events of a file.
struct Entries {
    reader: Reader<BufReader<File>>,
    name: String,
    waiting: VecDeque<Observed>,
    items: Vec<Item>,
    ended: bool,
    /// Why the file ends early, to be told after the events before.
    trouble: Option<String>,
}

impl Iterator for Entries {
    type Item = Result<Observed, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.waiting.is_empty() && !self.ended {
            match self.reader.next_items(&mut self.items) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    self.trouble = Some(format!("{}: {error}", self.name));
                }
            }
            let events = self.items.drain(..).filter_map(|item| match item {
                Item::Event(entry) => Some(entry),
                _ => None,
            });
            self.waiting.extend(events);
        }
        self.waiting.pop_front().map(Ok).or_else(|| self.trouble.take().map(Err))
    }
}
