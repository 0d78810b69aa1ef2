//! `tidewire serve`: the far end of `forward`. It prints a link and connects clients to the allowed targets,
//! until Ctrl-C.

use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidewire::{CloseReason, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_interrupted};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{self, Console, Event, Role};
use tidewire_forward::{Allowed, Far, HostPattern, MAX_STREAMS, Rule};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::forwarding;
use crate::listen::{self, Listen, Naming};
use crate::session;
use crate::ssh::FarVerb;
use crate::ssh::detach::{Detach, Vigil};
use crate::watch::WatchArgs;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Target that clients may reach, written exactly as the clients write it. `*` stands for every port, for
    /// every host but this machine itself, and in *.example.com for every name below it. With
    /// listen=[ADDR:]PORT, clients may open that port here with `forward -R`. Repeat the option for more. All
    /// else is refused [example: --allow localhost:80 --allow '*:443' --allow listen=8080]
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<Rule>,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    detach: Detach,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// [`Exit::LocalIo`] if the port is in use; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(mut args: Args, console: Console) -> Result<(), Failure> {
    if args.detach.is_wanted() {
        return args.detach.start();
    }
    args.detach.prepare(&mut args.listen, &mut args.naming)?;
    raise_open_files();
    let config = args.detach.config(args.coding.config(None).or_exit(Exit::Usage)?)?;
    let config = config.to_builder().max_streams(MAX_STREAMS).build().or_exit(Exit::Other)?;
    let (config, _watching) = args.watch.begin("serve", config, &console)?;
    let (endpoint, links) = listen::open(args.listen.listen, &args.naming, &config, &console).await?;
    if args.detach.is_detached() {
        args.detach.hand_over(FarVerb::Serve, links.first())?;
    } else {
        listen::announce(&links, |link| what_to_do(&args.allow, link), &console);
    }
    let mut vigil = args.detach.vigil(&config);
    let far = Arc::new(Far::new(Allowed::new(args.allow)));
    let (stop, mut serving) = (watch::Sender::new(()), JoinSet::new());
    let accepting = serve(&endpoint, &far, &console, (&stop, &mut serving), &mut vigil);
    let ended = unless_interrupted(listen::guarding(&endpoint, &args.naming, &console, accepting)).await;
    let ended = console.tell(quietly(ended));
    // Each connection writes its summary before it ends, including those that are cut off here.
    drop(stop);
    while serving.join_next().await.is_some() {}
    session::close(&endpoint).await;
    ended
}

/// Allows as many open files as the system lets this user have. The usual limit of 1,024 is that of programs
/// which use `select`, and two connections with all their streams would take them from everybody.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // A system that refuses leaves the limit as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What is allowed, and how the other machine uses the first rule.
fn what_to_do(allow: &[Rule], link: &str) -> String {
    let all: Vec<_> = allow.iter().map(Rule::to_string).collect();
    let port = |port: &Option<u16>| port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
    let option = match allow.first() {
        Some(Rule::Reach { host: host @ HostPattern::Exactly(_), port: number }) => {
            format!("-L 8080:{host}:{}", port(number))
        }
        Some(Rule::Listen { address, port: number }) => {
            let address = match address {
                Some(address) if address.is_ipv6() => format!("[{address}]:"),
                Some(address) if !address.is_loopback() => format!("{address}:"),
                _ => String::new(),
            };
            format!("-R {address}{}:localhost:80", port(number))
        }
        _ => "-D 1080".to_owned(),
    };
    format!("allows {}; on the other machine: tidewire forward {option} '{link}'", all.join(", "))
}

/// Accepts connections while it is polled, or until the vigil is over. Accepted connections are served until
/// `stop` is dropped.
async fn serve(
    endpoint: &Endpoint,
    far: &Arc<Far>,
    console: &Console,
    (stop, serving): (&watch::Sender<()>, &mut JoinSet<CloseReason>),
    vigil: &mut Vigil,
) -> Result<(), Failure> {
    loop {
        let is_serving = !serving.is_empty();
        tokio::select! {
            accepted = endpoint.accept() => {
                let connection = accepted.or_exit(Exit::Other)?;
                serving.spawn(serve_one(connection, Arc::clone(far), console.clone(), stop.subscribe()));
            }
            Some(ended) = serving.join_next() => {
                if vigil.ended(&ended.or_exit(Exit::Other)?) {
                    return Ok(());
                }
            }
            () = vigil.expired(is_serving) => return Ok(()),
        }
    }
}

/// Serves a connection, and returns why it ended.
async fn serve_one(
    connection: Connection,
    far: Arc<Far>,
    console: Console,
    mut stopped: watch::Receiver<()>,
) -> CloseReason {
    let begun = Instant::now();
    console.event(&Event::Connected { peer: connection.remote().to_string() });
    let report = forwarding::report(&console);
    let ended = tokio::select! {
        () = tidewire_forward::serve(&connection, &far, &report) => connection.closed().await,
        // Nothing is ever sent here: `changed` returns when the sender is dropped.
        _ = stopped.changed() => CloseReason::Local,
    };
    let stats = connection.stats();
    let bytes = stats.bytes.app_sent + stats.bytes.app_received;
    console.summary(&report::summary(&stats, Role::Both, bytes, begun.elapsed()));
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_decides_what_the_other_machine_is_told() {
        for (allow, option) in [
            ("[::1]:80", "-L 8080:[::1]:80 'L'"),
            ("web:*", "-L 8080:web:PORT 'L'"),
            ("*:443", "-D 1080 'L'"),
            ("*.example:443", "-D 1080 'L'"),
            ("listen=8080", "-R 8080:localhost:80 'L'"),
            ("listen=[::1]:*", "-R [::1]:PORT:localhost:80 'L'"),
            ("listen=0.0.0.0:80", "-R 0.0.0.0:80:localhost:80 'L'"),
        ] {
            let said = what_to_do(&[allow.parse().unwrap(), "other:1".parse().unwrap()], "L");
            assert!(said.ends_with(option) && said.contains(", other:1;"), "{said}");
        }
    }
}
