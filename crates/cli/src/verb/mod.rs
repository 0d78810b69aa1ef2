//! The verbs. Each has a file or folder with its arguments, its events and its `run`. `main` calls [`main`].

mod bench;
mod config;
mod dash;
mod demo;
mod forward;
mod help;
mod keygen;
mod live;
mod moved;
mod pipe;
mod probe;
mod receive;
mod relay;
mod replay;
mod send;
mod serve;
mod sides;
mod top;
#[cfg(target_os = "linux")]
mod tunnel;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{block_on, outlive_size_limit};
use tidewire_command::log;
use tidewire_command::manual::{self, Completions};
use tidewire_command::report::{Console, with};

use crate::backend;
use crate::link::LINK_VARIABLE;
use crate::settings::Settings;

/// A coded transport for links that lose packets.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version, max_term_width = 100, after_help = Exit::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    backend: backend::Choice,
}

/// The verb to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a file over an emulated lossy link on this machine in three ways, and compare them
    Demo(demo::Args),
    /// Send files and folders to the machine that printed the link
    Send(send::Args),
    /// Print a link, and receive files and folders that are sent to it
    Receive(receive::Args),
    /// Forward TCP ports through the machine that printed the link, like ssh -L, -D, -R and -W
    Forward(forward::Args),
    /// Print a link, connect `forward` clients to the allowed targets, and open the allowed ports for them
    Serve(serve::Args),
    /// Carry the IP packets of two or more machines, with losses repaired on the way
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Tunnel(tunnel::Command),
    /// Connect standard input and output to those of `pipe` on another machine, like netcat
    Pipe(pipe::Args),
    /// Send live video, or play it out a constant time later: datagrams of encoders to players
    Live(Box<live::Args>),
    /// Measure goodput, delay and overhead between two machines, with the option letters of iperf3
    Bench(Box<bench::Args>),
    /// Measure a path, predict the delay with coding, and tell whether plain TCP is good enough
    Probe(probe::Args),
    /// Recode between two ends that a relay connects: forward to one configured host, and read nothing
    Relay(Box<relay::Args>),
    /// Make a new secret or key pair
    Keygen(keygen::Args),
    /// Show recordings of --record in a browser, packet by packet
    Dash(dash::Args),
    /// Run a recorded flow again over its recorded path, with other choices
    Replay(replay::Args),
    /// Show the figures of a running job in a terminal
    Top(top::Args),
    /// Check or show the settings from files and the environment
    #[command(subcommand)]
    Config(config::Command),
    /// Print the script that makes a shell complete verbs and options
    Completions(Completions),
    /// Print the manual page
    Man,
    /// Print the help of a verb, or the names of profiles, codes and policies
    Help(help::Args),
    /// Verbs that this command had
    #[command(flatten)]
    Moved(moved::Verb),
}

/// The command with its help in two tiers.
pub fn command() -> clap::Command {
    help::shape(Cli::command())
}

/// Parses the command line. It overrides the settings of files and the environment.
///
/// # Errors
/// [`Exit::Usage`] for a wrong setting. A wrong command line or a request for help ends the process.
fn parse() -> Result<Cli, Failure> {
    let command = command();
    let settings = match Settings::load(&command) {
        Ok(settings) => settings,
        // `config` must start with wrong settings, because it reports what is wrong with them.
        Err(_) if std::env::args_os().nth(1).is_some_and(|verb| verb == "config") => Settings::default(),
        Err(error) => return Err(Failure::new(Exit::Usage, error)),
    };
    let matches = settings.apply(command).get_matches();
    sides::check(&matches)?;
    let cli = Cli::from_arg_matches(&matches).or_exit(Exit::Usage)?;
    if matches.subcommand_name().is_some_and(|verb| WITHOUT_SOCKETS.contains(&verb)) {
        backend::refuse(&cli.backend)?;
    }
    backend::choose(cli.backend.clone());
    Ok(cli)
}

/// Verbs that open no connection, or only those of their own on loopback: `--backend` says nothing to them.
const WITHOUT_SOCKETS: [&str; 9] = ["demo", "dash", "replay", "top", "keygen", "config", "completions", "man", "help"];

/// Runs the verb of the command line, and returns the exit code of the process.
pub fn main() -> ExitCode {
    outlive_size_limit();
    let cli = match log::start().and_then(|()| parse()) {
        Ok(cli) => cli,
        Err(failure) => {
            Console::new(false, false).error(&failure);
            return failure.exit.into();
        }
    };
    match cli.command {
        Command::Demo(args) => with(args.output.console(), |console| block_on(demo::run(args, console))),
        Command::Send(args) => with(args.output.console(), |console| block_on(send::run(args, console))),
        Command::Receive(args) => with(args.output.console(), |console| block_on(receive::run(args, console))),
        Command::Forward(args) => with(args.console(), |console| block_on(forward::run(args, console))),
        Command::Serve(args) => with(args.output.console(), |console| block_on(serve::run(args, console))),
        #[cfg(target_os = "linux")]
        Command::Tunnel(command) => with(command.console(), |console| block_on(tunnel::run(command, console))),
        Command::Pipe(args) => with(args.output.console().beside_data(), |console| block_on(pipe::run(args, console))),
        Command::Live(args) => with(args.console(), |console| block_on(live::run(*args, console))),
        Command::Bench(args) => with(args.output.console(), |console| block_on(bench::run(*args, console))),
        Command::Probe(args) => with(args.output.console(), |console| block_on(probe::run(args, console))),
        Command::Relay(args) => with(args.output.console(), |console| block_on(relay::run(*args, console))),
        Command::Keygen(args) => with(Console::new(false, false), |console| keygen::run(&args, &console)),
        Command::Config(command) => with(Console::new(false, false), |_| config::run(&command)),
        Command::Completions(args) => with(Console::new(false, false), |_| {
            args.print(command());
            Ok(())
        }),
        Command::Man => with(Console::new(false, false), |_| {
            manual::print(command(), &[(LINK_VARIABLE, "The link to connect to, if the command line has none.")]);
            Ok(())
        }),
        Command::Help(args) => with(Console::new(false, false), |_| help::run(&args, command())),
        Command::Moved(verb) => with(Console::new(false, false), |_| verb.refuse()),
        Command::Dash(args) => with(args.output.console(), |console| block_on(dash::run(args, console))),
        Command::Top(args) => with(Console::new(false, false), |_| top::run(&args)),
        Command::Replay(args) => with(args.output.console(), |console| replay::run(&args, &console)),
    }
}
