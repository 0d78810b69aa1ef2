//! The far end: accepts the streams of a connection, and connects each to its target or opens its port, if
//! the user allows that.

use std::sync::Arc;

use tidewire::{Connection, Stream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::allowed::Allowed;
use crate::copy::Copied;
use crate::error::CarryError;
use crate::header::{Answer, Code, Request, read_request};
use crate::listener::{self, Limits};
use crate::news::{News, Report, tell};
use crate::openings::Openings;
use crate::target::Target;
use crate::{REQUEST_PATIENCE, outward};

/// A far end: what its clients may reach and open, and the ports that are open for them.
#[derive(Debug)]
pub struct Far {
    allowed: Allowed,
    openings: Arc<Openings>,
}

impl Far {
    /// A far end without clients.
    pub fn new(allowed: Allowed) -> Self {
        Self { allowed, openings: Arc::default() }
    }
}

/// What the streams of one connection share.
struct Served {
    connection: Connection,
    far: Arc<Far>,
    report: Report,
    limits: Limits,
    connects: watch::Sender<Connects>,
}

/// The TCP connections of all CONNECT streams, for DRAIN.
#[derive(Default)]
struct Connects {
    open: usize,
    /// Whether one was refused or reset.
    has_failed: bool,
}

/// Serves a connection until it is closed. Dropping it drops all TCP connections that it carries. Of two
/// connections with one key, the one that is served first is the older one.
pub async fn serve(connection: &Connection, far: &Arc<Far>, report: &Report) {
    let served = Arc::new(Served {
        connection: connection.clone(),
        far: Arc::clone(far),
        report: Arc::clone(report),
        limits: Limits::new(far.openings.session(connection.peer_key()), &far.openings),
        connects: watch::Sender::default(),
    });
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept() => {
                let Ok(stream) = stream else { break };
                let served = Arc::clone(&served);
                streams.spawn(async move { served.carry(stream).await });
            }
            Some(_) = streams.join_next() => {}
        }
    }
    // Each task sees that the connection is closed, and resets its TCP connection.
    while streams.join_next().await.is_some() {}
}

impl Served {
    /// Serves one stream, from its request to its end.
    async fn carry(&self, mut stream: Stream) {
        let Ok(Ok(request)) = timeout(REQUEST_PATIENCE, read_request(&mut stream)).await else { return };
        match request {
            Ok(Request::Check(target)) => {
                let answer = self.far.allowed.target(&target).err().unwrap_or_else(|| Answer::new(Code::Ready, ""));
                outward::end(stream, &answer).await;
                if !answer.is_ready() {
                    self.tell(&target.to_string(), &Copied::default(), Err(CarryError::Refused(answer)));
                }
            }
            Ok(Request::Connect(target)) => self.connect(stream, &target).await,
            Ok(Request::Listen { id, address }) => {
                let ended = match self.far.allowed.listen(address) {
                    Ok(()) => {
                        listener::listen(stream, &self.connection, (id, address), &self.limits, &self.report).await
                    }
                    Err(answer) => {
                        outward::end(stream, &answer).await;
                        Err(CarryError::Refused(answer))
                    }
                };
                if ended.is_err() {
                    self.tell(&address.to_string(), &Copied::default(), ended);
                }
            }
            Ok(Request::Drain) => self.drain(stream).await,
            Ok(Request::Accepted { .. }) => {
                let answer =
                    Answer::new(Code::NotUnderstood, "this is tidewire serve: only it accepts for the other side");
                outward::end(stream, &answer).await;
            }
            Err(answer) => {
                (self.report)(&News::NotUnderstood { peer: self.connection.remote(), answer: &answer });
                outward::end(stream, &answer).await;
            }
        }
    }

    async fn connect(&self, stream: Stream, target: &Target) {
        self.connects.send_modify(|connects| connects.open += 1);
        let carried = Copied::default();
        let ended = outward::carry(stream, target, &self.far.allowed, self.connection.share(), &carried).await;
        let has_failed = ended.is_err();
        self.tell(&target.to_string(), &carried, ended);
        self.connects.send_modify(|connects| {
            connects.open -= 1;
            connects.has_failed |= has_failed;
        });
    }

    /// Answers when no CONNECT stream is left.
    async fn drain(&self, stream: Stream) {
        let mut connects = self.connects.subscribe();
        // The sender of the watch belongs to `self`.
        let Ok(has_failed) = connects.wait_for(|connects| connects.open == 0).await.map(|connects| connects.has_failed)
        else {
            return;
        };
        let code = if has_failed { Code::Reset } else { Code::Ready };
        outward::end(stream, &Answer::new(code, "")).await;
    }

    fn tell(&self, target: &str, carried: &Copied, ended: Result<(), CarryError>) {
        tell(&self.report, self.connection.remote(), target, carried, ended);
    }
}
