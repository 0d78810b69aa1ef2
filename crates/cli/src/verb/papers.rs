//! `tidewire papers [NAME]`: the papers that can be reproduced; or the data of one paper's figures and tables, made anew.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use crate::exit::{Exit, Failure};
use crate::papers::{PAPERS, Paper, row};
use crate::report::Console;

/// Arguments of `papers`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which paper; without, they are listed
    name: Option<String>,
    /// Only this figure or table, such as `figure-6`
    #[arg(long, value_name = "NAME", requires = "name")]
    only: Option<String>,
    /// Where the data goes [default: papers/NAME/data]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Ten times the symbols and twenty seeds instead of three
    #[arg(long)]
    full: bool,
}

/// Lists the papers, or runs one.
///
/// # Errors
/// [`Exit::Usage`] for a name that is none, [`Exit::LocalIo`] when the data cannot be written.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        for paper in &PAPERS {
            // A closed pipe is the reader's business.
            let _ = writeln!(std::io::stdout(), "{:<20} {}", paper.name, paper.title);
        }
        return Ok(());
    };
    let known = PAPERS.map(|paper| paper.name).join(", ");
    let paper = PAPERS.iter().find(|paper| paper.name == name);
    let paper =
        paper.ok_or_else(|| Failure::message(Exit::Usage, format_args!("no paper `{name}`; there are: {known}")))?;
    reproduce(paper, args, console)
}

fn reproduce(paper: &Paper, args: &Args, console: &Console) -> Result<(), Failure> {
    let folder = args.out.clone().unwrap_or_else(|| ["papers", paper.name, "data"].iter().collect());
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let mut experiments = paper.experiments.iter().filter(|experiment| wanted(experiment.name)).peekable();
    if experiments.peek().is_none() {
        let names: Vec<_> = paper.experiments.iter().map(|experiment| experiment.name).collect();
        return Err(Failure::message(Exit::Usage, format_args!("--only names none of: {}", names.join(", "))));
    }
    for experiment in experiments {
        let began = Instant::now();
        let rows = (experiment.run)(args.full);
        row::write(&folder, experiment.name, &rows).map_err(|error| {
            Failure::message(Exit::LocalIo, format_args!("cannot write into `{}`: {error}", folder.display()))
        })?;
        let seconds = began.elapsed().as_secs_f64();
        console.say(&format!("{}: {}, {} rows, {seconds:.1} s", experiment.name, experiment.title, rows.len()));
    }
    Ok(())
}
