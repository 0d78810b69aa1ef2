//! `tidewire dash FILE...`: shows recordings of `--record` in a browser.
//!
//! Each page reads the files anew. Invariant: a file is read block by block, so memory does not grow with it.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidewire_command::exit::{Exit, Failure};
use tidewire_command::interrupt::{self, quietly, unless_interrupted};
use tidewire_command::options::Output;
use tidewire_command::report::Console;

use crate::dash::{self, Each, Recording};
use tidewire_recording::{Item, Reader};

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
    interrupt::heed();
    let _serving = dash::show(args.listen, recordings, &console)?;
    quietly(unless_interrupted(std::future::pending()).await)
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

    fn read(&self, each: &mut Each<'_>) -> Result<(), String> {
        let mut reader = open(&self.path)?;
        let mut goes_on = true;
        while goes_on {
            let mut take = |item: &Item| {
                if let (true, Item::Event(entry)) = (goes_on, item) {
                    goes_on = each(entry);
                }
            };
            match reader.next_items(&mut take) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<Reader<BufReader<File>>, String> {
    let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    Reader::open(BufReader::new(file)).map_err(|error| format!("cannot show {}: {error}", path.display()))
}
