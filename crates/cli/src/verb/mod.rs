//! The verbs, one file each: its arguments, and `run`.

mod bench;
mod completions;
mod config;
mod demo;
mod forward;
mod keygen;
mod lab;
mod man;
mod papers;
mod pipe;
mod probe;
mod receive;
mod send;
mod serve;
mod sim;

use std::future::Future;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{Exit, Failure, OrExit};
use crate::report::Console;
use crate::session::unless_interrupted;
use crate::settings::Settings;

/// A coded transport for links that lose packets.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version, max_term_width = 100, after_help = Exit::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the main job on this machine: a file over an emulated lossy link, three ways
    Demo(demo::Args),
    /// Send files and folders to whoever printed the link
    Send(send::Args),
    /// Print a link and receive what is sent to it
    Receive(receive::Args),
    /// Have TCP connections to this machine taken up by whoever printed the link, as ssh -L does
    Forward(forward::Args),
    /// Print a link and connect those who forward to what is allowed
    Serve(serve::Args),
    /// Standard input there, the other side's to standard output, like netcat
    Pipe(pipe::Args),
    /// Measure goodput, delay and overhead between two machines, with iperf3's letters
    Bench(Box<bench::Args>),
    /// What a path is like, what coding would bring there, and whether plain TCP does
    Probe(probe::Args),
    /// Make a secret or a key pair
    Keygen(keygen::Args),
    /// Emulate links
    #[command(subcommand)]
    Lab(lab::Command),
    /// Run a scenario in virtual time
    Sim(sim::Args),
    /// Make the figures and tables of a paper anew, as data
    Papers(papers::Args),
    /// Check and show settings from files and the environment
    #[command(subcommand)]
    Config(config::Command),
    /// Print what a shell needs to complete verbs and options
    Completions(completions::Args),
    /// Print the manual page [example: tidewire man | man -l -]
    Man,
}

/// Parses the command line, over the settings of files and the environment.
///
/// # Errors
/// [`Exit::Usage`] for a wrong setting. A wrong command line ends the process, as does a request for help.
fn parse() -> Result<Cli, Failure> {
    let command = Cli::command();
    let settings = match Settings::load(&command) {
        Ok(settings) => settings,
        // What is wrong with settings is what this verb is for.
        Err(_) if std::env::args_os().nth(1).is_some_and(|verb| verb == "config") => Settings::default(),
        Err(error) => return Err(Failure::new(Exit::Usage, error)),
    };
    let matches = settings.apply(command).get_matches();
    Cli::from_arg_matches(&matches).or_exit(Exit::Usage)
}

/// Runs what was asked for; the process ends with the code returned.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(failure) => {
            Console::new(false, false).error(&failure);
            return failure.exit.into();
        }
    };
    let (console, ended) = match cli.command {
        Command::Demo(args) => {
            with(args.output.console(), |console| block_on(unless_interrupted(demo::run(args, console))))
        }
        Command::Send(args) => with(args.output.console(), |console| block_on(send::run(args, console))),
        Command::Receive(args) => with(args.output.console(), |console| block_on(receive::run(args, console))),
        Command::Forward(args) => with(args.output.console(), |console| block_on(forward::run(args, console))),
        Command::Serve(args) => with(args.output.console(), |console| block_on(serve::run(args, console))),
        Command::Pipe(args) => with(args.output.console().beside_data(), |console| block_on(pipe::run(args, console))),
        Command::Bench(args) => with(args.output.console(), |console| block_on(bench::run(*args, console))),
        Command::Probe(args) => with(args.output.console(), |console| block_on(probe::run(args, console))),
        Command::Keygen(args) => with(Console::new(false, false), |console| keygen::run(&args, &console)),
        Command::Lab(command) => lab::run(command),
        Command::Config(command) => with(Console::new(false, false), |_| config::run(&command)),
        Command::Completions(args) => with(Console::new(false, false), |_| {
            completions::run(&args);
            Ok(())
        }),
        Command::Man => with(Console::new(false, false), |_| {
            man::run();
            Ok(())
        }),
        Command::Papers(args) => with(Console::new(false, false), |console| papers::run(&args, &console)),
        Command::Sim(args) => with(args.output.console(), |console| sim::run(&args, &console)),
    };
    match ended {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            console.error(&failure);
            failure.exit.into()
        }
    }
}

type Ended = Result<(), Failure>;

fn with(console: Console, verb: impl FnOnce(Console) -> Ended) -> (Console, Ended) {
    let ended = verb(console.clone());
    (console, ended)
}

/// Runs an asynchronous verb; each decides by itself what Ctrl-C ends.
fn block_on(verb: impl Future<Output = Ended>) -> Ended {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().or_exit(Exit::Other)?;
    runtime.block_on(verb)
}
