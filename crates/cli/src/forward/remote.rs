//! The near half of `-R`: asks the far side to listen, and connects what it accepts to the targets.
//!
//! [`client`](super::client) makes one [`Remote`] and starts it over each new connection. Invariant: a stream
//! that the far side opens leads to a target of this command line or nowhere.

use std::io;
use std::sync::Arc;

use tidewire::{Connection, Stream};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{Console, Event};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::allowed::Allowed;
use super::client::refused;
use super::header::{Answer, Code, Request, read_answer, read_request, write_request};
use super::relay::Relayed;
use super::target::PortForward;
use super::{REQUEST_PATIENCE, outward, report};
use crate::live::LONGEST_PAUSE;

/// All `-R` options. The id of a port is its place among them.
pub(super) struct Remote {
    forwards: Vec<PortForward>,
    allowed: Allowed,
    console: Console,
}

impl Remote {
    pub(super) fn new(forwards: &[PortForward], console: &Console) -> Self {
        let allowed = Allowed::new(forwards.iter().map(|forward| (&forward.target).into()));
        Self { forwards: forwards.to_vec(), allowed, console: console.clone() }
    }

    /// Asks for all ports over the first connection, and returns the streams that keep them open.
    ///
    /// # Errors
    /// [`Exit::Authentication`] if a port is not allowed, [`Exit::LocalIo`] if one cannot be opened,
    /// [`Exit::Unreachable`] if the connection is lost.
    pub(super) async fn open_all(&self, connection: &Connection) -> Result<Vec<Option<Stream>>, Failure> {
        let mut streams = Vec::new();
        for (id, forward) in self.forwards.iter().enumerate() {
            let opened = self.open(connection, id, forward).await;
            let opened = opened.and_then(|opened| opened.map_err(io::Error::other));
            let opened = opened.map_err(|error| refused(format_args!("-R {}", forward.listen), error))?;
            streams.push(Some(opened));
        }
        Ok(streams)
    }

    /// The same without streams, for a later connection: the ports are asked for until they are open.
    pub(super) fn none_open(&self) -> Vec<Option<Stream>> {
        self.forwards.iter().map(|_| None).collect()
    }

    /// Carries what the far side accepts, and keeps its ports open, until the connection is closed.
    pub(super) async fn run(self: Arc<Self>, connection: Connection, streams: Vec<Option<Stream>>) {
        let mut tasks = JoinSet::new();
        for (id, stream) in streams.into_iter().enumerate() {
            let (remote, connection) = (Arc::clone(&self), connection.clone());
            tasks.spawn(async move { remote.keep_open(&connection, id, stream).await });
        }
        loop {
            tokio::select! {
                stream = connection.accept() => {
                    let Ok(stream) = stream else { break };
                    let (remote, connection) = (Arc::clone(&self), connection.clone());
                    tasks.spawn(async move { remote.carry(stream, &connection).await });
                }
                Some(_) = tasks.join_next() => {}
            }
        }
        // Each task sees that the connection is closed, and resets its TCP connection.
        while tasks.join_next().await.is_some() {}
    }

    /// Asks for one port until it is open, and again whenever the far side closes it.
    async fn keep_open(&self, connection: &Connection, id: usize, mut stream: Option<Stream>) {
        let Some(forward) = self.forwards.get(id) else { return };
        let mut is_told = false;
        loop {
            match &mut stream {
                // The far side sends nothing after its answer. Its end says that the port is closed.
                Some(open) => {
                    if open.read(&mut [0]).await.is_err() {
                        return;
                    }
                    self.console.warn(&format!("-R {}: the far side has closed the port", forward.listen));
                    stream = None;
                }
                None => match self.open(connection, id, forward).await {
                    Ok(Ok(opened)) => {
                        (stream, is_told) = (Some(opened), false);
                        continue;
                    }
                    Ok(Err(answer)) if !is_told => {
                        self.console.warn(&format!("-R {}: {answer}; trying again", forward.listen));
                        is_told = true;
                    }
                    Ok(Err(_)) => {}
                    // The connection is lost.
                    Err(_) => return,
                },
            }
            sleep(LONGEST_PAUSE).await;
        }
    }

    /// Asks for one port. Returns the stream that keeps it open, or the answer that refuses it.
    async fn open(
        &self,
        connection: &Connection,
        id: usize,
        forward: &PortForward,
    ) -> io::Result<Result<Stream, Answer>> {
        let mut stream = connection.open().await?;
        let id = u16::try_from(id).map_err(io::Error::other)?;
        write_request(&mut stream, &Request::Listen { id, address: forward.listen }).await?;
        let answer = read_answer(&mut stream).await?;
        if !answer.is_ready() {
            return Ok(Err(answer));
        }
        let (listening, to) = (answer.detail, forward.target.to_string());
        self.console.say(&format!("{listening} of the far side leads to {to}"));
        self.console.event(&Event::Listening { listening, to, far: true });
        Ok(Ok(stream))
    }

    /// Connects one stream of the far side to its target.
    async fn carry(&self, mut stream: Stream, connection: &Connection) {
        let Ok(Ok(request)) = timeout(REQUEST_PATIENCE, read_request(&mut stream)).await else { return };
        let forward = match request {
            Ok(Request::Accepted { id, peer }) => self.forwards.get(usize::from(id)).map(|forward| (forward, peer)),
            _ => None,
        };
        let Some((forward, peer)) = forward else {
            return outward::end(stream, &Answer::new(Code::NotUnderstood, "this is tidewire forward")).await;
        };
        let (carried, target) = (Relayed::default(), &forward.target);
        let ended = outward::carry(stream, target, &self.allowed, connection.share(), &carried).await;
        report(&self.console, peer, &target.to_string(), &carried, ended.err().as_deref());
    }
}

pub(super) fn exit_of(answer: &Answer) -> Exit {
    match answer {
        answer if answer.is(Code::NotAllowed) => Exit::Authentication,
        answer if answer.is(Code::NotListening) => Exit::LocalIo,
        answer if answer.is(Code::Refused) || answer.is(Code::Unreachable) || answer.is(Code::Reset) => {
            Exit::Unreachable
        }
        _ => Exit::Other,
    }
}
