//! The far end: accepts the streams of a connection, and connects each to its target if the user allows that
//! target.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Connection, Stream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::header::{Answer, Code, Request, read_request, write_answer};
use super::target::Target;
use super::{Relayed, abandon, report, sockets, stream_to_tcp, tcp_to_stream};
use crate::report::Console;

/// Time for a target to accept, over all its addresses. Chosen: the first three SYNs of TCP (RFC 6298: 1, 2
/// and 4 s) and an answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Time for a request to arrive. It follows the opening of its stream at once, so this leaves time to repair
/// its losses.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);

/// The targets that clients may reach. All others are refused.
#[derive(Clone, Debug, Default)]
pub struct Allowed(BTreeSet<Target>);

impl Allowed {
    /// Allows exactly these targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Self(targets.into_iter().collect())
    }

    /// Returns an answer if `target` is not allowed.
    fn check(&self, target: &Target) -> Result<(), Answer> {
        if self.0.contains(target) { Ok(()) } else { Err(Answer::new(Code::NotAllowed, "")) }
    }
}

/// Serves a connection until it is closed. Dropping it drops all TCP connections that it carries.
pub async fn serve(connection: &Connection, allowed: &Arc<Allowed>, console: &Console) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept() => {
                let Ok(stream) = stream else { break };
                streams.spawn(carry(stream, connection.clone(), Arc::clone(allowed), console.clone()));
            }
            Some(_) = streams.join_next() => {}
        }
    }
    // Each task sees that the connection is closed, and resets its TCP connection.
    while streams.join_next().await.is_some() {}
}

/// Serves one stream, from its request to its end.
async fn carry(mut stream: Stream, connection: Connection, allowed: Arc<Allowed>, console: Console) {
    let peer = connection.remote();
    let Ok(Ok(request)) = timeout(REQUEST_PATIENCE, read_request(&mut stream)).await else { return };
    let (target, answer) = match request {
        Ok(Request::Check(target)) => {
            let answer = allowed.check(&target).err().unwrap_or_else(|| Answer::new(Code::Ready, ""));
            (target, Err(answer))
        }
        Ok(Request::Connect(target)) => {
            let tcp = connect(&target, &allowed, connection.share()).await;
            (target, tcp)
        }
        Err(answer) => {
            console.warn(&format!("{peer}: {answer}"));
            return end(stream, &answer).await;
        }
    };
    let carried = Relayed::default();
    let failure = match answer {
        Ok(tcp) => relay(tcp, stream, &carried).await.err().map(|error| error.to_string()),
        Err(answer) => {
            end(stream, &answer).await;
            if answer.is_ready() {
                return;
            }
            Some(if answer.is_not_allowed() {
                format!("no --allow names it {}", answer.detail)
            } else {
                answer.to_string()
            })
        }
    };
    report(&console, peer, &target.to_string(), &carried, failure.as_deref());
}

/// Sends an answer that nothing follows. If the answer is lost with the connection, the client sees that
/// instead.
async fn end(mut stream: Stream, answer: &Answer) {
    if write_answer(&mut stream, answer).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// Connects to the first address of the target that accepts.
async fn connect(target: &Target, allowed: &Allowed, share: usize) -> Result<TcpStream, Answer> {
    allowed.check(target)?;
    let mut failure = Answer::new(Code::Unreachable, "its name has no address");
    let try_all = async {
        let addresses = tokio::net::lookup_host((target.host(), target.port()))
            .await
            .map_err(|error| Answer::new(Code::Unreachable, error.to_string()))?;
        for address in addresses {
            if is_private_to_host(address.ip()) && !target.names_loopback() {
                failure =
                    Answer::new(Code::NotAllowed, format!("its name leads to {}: allow that address", address.ip()));
                continue;
            }
            match sockets::connect(address, share).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    failure = Answer::new(Code::Refused, address.to_string());
                }
                Err(error) => failure = Answer::new(Code::Unreachable, format!("{address}: {error}")),
            }
        }
        Err(failure)
    };
    let late = |_| Answer::new(Code::Unreachable, format!("it did not answer within {} s", CONNECT_PATIENCE.as_secs()));
    timeout(CONNECT_PATIENCE, try_all).await.map_err(late)?
}

/// Whether an address is of this host or its local network segment. Somebody else may have pointed a name to
/// such an address (DNS rebinding).
fn is_private_to_host(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// Answers that the target has accepted, then copies bytes both ways, each until its own end.
async fn relay(mut tcp: TcpStream, mut stream: Stream, carried: &Relayed) -> io::Result<()> {
    sockets::tune(&tcp);
    write_answer(&mut stream, &Answer::new(Code::Ready, "")).await?;
    let (mut stream_reader, mut stream_writer) = stream.split();
    let (mut tcp_reader, mut tcp_writer) = tcp.split();
    let both = tokio::try_join!(
        stream_to_tcp(&mut stream_reader, &mut tcp_writer, &carried.there),
        tcp_to_stream(&mut tcp_reader, &mut stream_writer, &carried.back, |_| ()),
    );
    if both.is_err() {
        abandon(&mut stream_reader, &mut stream_writer);
        let _ = tcp.set_zero_linger();
    }
    both.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_to_this_host_unless_they_say_so() {
        for (address, private) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("169.254.169.254", true),
            ("fe80::1", true),
            ("0.0.0.0", true),
            ("10.0.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private_to_host(address.parse().unwrap()), private, "{address}");
        }
        let names = |text: &str| text.parse::<Target>().unwrap().names_loopback();
        assert!(names("127.0.0.1:1") && names("localhost:1") && names("[::1]:1"));
        assert!(!names("localhost.example:1"));
    }
}
