//! The far side: `receive` and `serve` hand their link over and go on in the background.
//!
//! The process that ssh started starts itself again, as the first process of a new session, passes its line
//! on to ssh and ends. Nothing then holds ssh's connection. Invariants: the secret is made in the background
//! process and goes through pipes only. [`Vigil`] ends that process, whatever happens to the near end.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use tidewire::link::Link;
use tidewire::{CloseReason, Config};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tokio::time::{Instant, sleep_until};

use super::handover::{self, FarVerb};
use crate::listen::{Listen, Naming};
use crate::session::SURPLUS;

/// Longest wait for the first connection. Chosen: the near end tries for 30 s; `mosh-server` waits as long.
const FIRST_SILENCE: Duration = Duration::from_secs(60);
/// Names the addresses of an ssh connection at its far side: client, port, server, port.
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// The options of a verb that can go to the background.
#[derive(Args, Clone, Copy, Debug)]
pub struct Detach {
    /// Print the link on a line for `send` or `forward`, which start this verb over ssh, go to the
    /// background, and end with the job or after this time without a packet [example: 10min]
    #[arg(long, value_name = "TIME", value_parser = super::parse_silence)]
    detach: Option<Duration>,
    /// Given to the background process by the one that started it.
    #[arg(long, hide = true, requires = "detach")]
    detached: bool,
}

impl Detach {
    /// Whether this process was started to go to the background, and is not there yet.
    pub fn is_wanted(self) -> bool {
        self.detach.is_some() && !self.detached
    }

    /// Whether this process is in the background.
    pub fn is_detached(self) -> bool {
        self.detached
    }

    /// Starts the background process, and ends when that has handed its link over.
    ///
    /// # Errors
    /// Those of the background process, which has reported them, or of starting it.
    pub fn start(self) -> Result<(), Failure> {
        let program = std::env::current_exe().or_exit(Exit::Other)?;
        let mut behind = Command::new(program);
        behind.args(std::env::args_os().skip(1)).arg("--detached").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut behind = behind.spawn().or_exit(Exit::Other)?;
        let mut line = String::new();
        let read = behind.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line)).transpose();
        if read.or_exit(Exit::Other)?.is_none_or(|bytes| bytes == 0) {
            let code = behind.wait().or_exit(Exit::Other)?.code();
            let exit = Exit::TABLE.iter().map(|(exit, _)| *exit).find(|exit| Some(i32::from(exit.code())) == code);
            return Err(Failure::reported(exit.unwrap_or(Exit::Other)));
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
            // Nobody has the link, so nobody will connect.
            let _ = behind.kill();
            Failure::message(Exit::LocalIo, format_args!("cannot hand the link over: {error}"))
        })
    }

    /// In the background process: leaves the session of ssh, and fills in where to listen and which host to
    /// name. The near end should connect to the address that ssh connected to. Without one, the link has a
    /// wildcard address, and the near end uses the name that it gave to ssh.
    ///
    /// # Errors
    /// The system refuses a new session.
    pub fn prepare(self, listen: &mut Listen, naming: &mut Naming) -> Result<(), Failure> {
        if !self.detached {
            return Ok(());
        }
        #[cfg(unix)]
        rustix::process::setsid().or_exit(Exit::Other)?;
        #[cfg(not(unix))]
        return Err(Failure::message(Exit::Usage, "--detach needs a Unix system"));
        let connected = std::env::var(SSH_CONNECTION).ok().and_then(|text| server_address(&text));
        if listen.listen.ip().is_unspecified() && connected.is_some_and(|address| address.is_ipv6()) {
            listen.listen.set_ip(Ipv6Addr::UNSPECIFIED.into());
        }
        let host = connected.unwrap_or_else(|| listen.listen.ip());
        let host = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
        naming.host.get_or_insert(host);
        Ok(())
    }

    /// Ends a silent connection after the time of `--detach` at the latest.
    ///
    /// # Errors
    /// None: the time was checked when it was parsed.
    pub fn config(self, config: Config) -> Result<Config, Failure> {
        match self.detach {
            Some(silence) => {
                let idle = config.idle_timeout().min(silence);
                config.to_builder().idle_timeout(idle).build().or_exit(Exit::Usage)
            }
            None => Ok(config),
        }
    }

    /// Hands the link over, and lets go of the input and outputs that belong to ssh.
    ///
    /// # Errors
    /// [`Exit::LocalIo`] if nobody reads any more.
    pub fn hand_over(self, verb: FarVerb, link: &Link) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", handover::write(verb, link)).and_then(|()| stdout.flush()).or_exit(Exit::LocalIo)?;
        drop(stdout);
        #[cfg(unix)]
        release_stdio().or_exit(Exit::LocalIo)?;
        Ok(())
    }

    /// Begins to wait for the near end. `config` is that of the connections.
    pub fn vigil(self, config: &Config) -> Vigil {
        let rest = self.detach.map(|silence| silence.saturating_sub(config.idle_timeout()));
        let until = self.detach.and_then(|silence| Instant::now().checked_add(silence.min(FIRST_SILENCE)));
        Vigil { rest, until: until.filter(|_| self.detached) }
    }
}

/// Decides when a far end has waited long enough. One that is not in the background waits for ever.
#[derive(Debug)]
pub struct Vigil {
    /// Time between the loss of a connection, which is noticed by its silence, and the end.
    rest: Option<Duration>,
    /// When to end, while there is no connection.
    until: Option<Instant>,
}

impl Vigil {
    /// Whether it decides at all.
    pub fn is_kept(&self) -> bool {
        self.until.is_some()
    }

    /// Waits for the end of the time without a connection. It never comes while `serving`.
    pub async fn expired(&self, serving: bool) {
        match self.until {
            Some(until) if !serving => sleep_until(until).await,
            _ => std::future::pending().await,
        }
    }

    /// A connection ended for this reason. Returns whether the near end is done, so that this end must end.
    /// Without that, the near end may come back.
    pub fn ended(&mut self, reason: &CloseReason) -> bool {
        if self.until.is_none() {
            return false;
        }
        if matches!(reason, CloseReason::Peer { code, .. } if *code != SURPLUS) {
            return true;
        }
        if let (Some(rest), false) = (self.rest, matches!(reason, CloseReason::Peer { .. })) {
            self.until = Instant::now().checked_add(rest).max(self.until);
        }
        false
    }
}

/// The server's address in the value of `SSH_CONNECTION`.
fn server_address(connection: &str) -> Option<IpAddr> {
    connection.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(unix)]
fn release_stdio() -> std::io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidewire::CloseCode;

    use super::*;

    fn vigil(detached: bool) -> Vigil {
        let detach = Detach { detach: Some(Duration::from_secs(210)), detached };
        let config = detach.config(Config::default()).unwrap();
        detach.vigil(&config)
    }

    #[tokio::test]
    async fn a_close_of_the_near_end_ends_the_far_end_and_a_loss_gives_it_time() {
        let closed = |code| CloseReason::Peer { code, reason: String::new() };
        assert!(vigil(true).ended(&closed(CloseCode::Done)));
        let first = vigil(true).until.unwrap();
        let mut surplus = vigil(true);
        assert!(!surplus.ended(&closed(SURPLUS)) && surplus.until.unwrap() < first + Duration::from_secs(1));
        let mut lost = vigil(true);
        assert!(!lost.ended(&CloseReason::Idle));
        let rest = lost.until.unwrap() - first;
        // The connection was silent for 60 of the 210 s, and the first one is awaited for 60 s.
        assert!((89..91).contains(&rest.as_secs()), "{rest:?}");
        // A process in the foreground serves until Ctrl-C.
        let mut foreground = vigil(false);
        assert!(!foreground.ended(&closed(CloseCode::Done)) && !foreground.is_kept());
    }

    #[test]
    fn sshd_names_the_address_that_the_client_reached() {
        assert_eq!(server_address("192.0.2.1 40000 198.51.100.7 22"), "198.51.100.7".parse().ok());
        assert_eq!(server_address("2001:db8::1 40000 2001:db8::7 22"), "2001:db8::7".parse().ok());
        assert_eq!(server_address("UNKNOWN 65535 UNKNOWN 65535"), None);
    }
}
