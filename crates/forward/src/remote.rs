//! The near half of `-R`: asks the far side to listen, and connects what it accepts to the targets.
//!
//! [`crate::near`] makes one [`Remote`] and starts it over each new connection. Invariant: a stream that the
//! far side opens leads to a target that the user named, or nowhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Connection, Stream};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::allowed::Allowed;
use crate::copy::Copied;
use crate::error::{Asked, ForwardError};
use crate::header::{Answer, Code, Request, read_answer, read_request, write_request};
use crate::news::{News, Report, tell};
use crate::target::PortForward;
use crate::{REQUEST_PATIENCE, outward};

/// Pause before a port is asked for again. Chosen: one packet in this time for a port that stays in use.
const PAUSE: Duration = Duration::from_secs(5);

/// All `-R` options. The id of a port is its place among them.
pub(crate) struct Remote {
    forwards: Vec<PortForward>,
    allowed: Allowed,
    report: Report,
}

impl Remote {
    pub(crate) fn new(forwards: &[PortForward], report: &Report) -> Self {
        let allowed = Allowed::new(forwards.iter().map(|forward| (&forward.target).into()));
        Self { forwards: forwards.to_vec(), allowed, report: Arc::clone(report) }
    }

    /// Asks for all ports over the first connection, and returns the streams that keep them open. There is
    /// none for a port that is in use: that is told, and [`Remote::run`] asks again.
    ///
    /// # Errors
    /// [`ForwardError::Refused`] if a port is not allowed or cannot be opened, [`ForwardError::Lost`] if the
    /// connection is lost.
    pub(crate) async fn open_all(&self, connection: &Connection) -> Result<Vec<Option<Stream>>, ForwardError> {
        let mut streams = Vec::new();
        for (id, forward) in self.forwards.iter().enumerate() {
            let opened = match self.open(connection, id, forward).await {
                Ok(Err(answer)) if answer.is(Code::InUse) => {
                    (self.report)(&News::FarRefused { port: forward.listen, answer: &answer });
                    Ok(None)
                }
                opened => opened.and_then(|opened| opened.map(Some).map_err(io::Error::other)),
            };
            streams.push(opened.map_err(|error| ForwardError::of(Asked::Port(forward.listen), error))?);
        }
        Ok(streams)
    }

    /// Whether there is no port to open.
    pub(crate) fn is_empty(&self) -> bool {
        self.forwards.is_empty()
    }

    /// Carries what the far side accepts, and keeps its ports open, until the connection is closed. `opened`
    /// has the streams of [`Remote::open_all`] over this connection; without them, the ports are asked for
    /// until they are open.
    pub(crate) async fn run(self: Arc<Self>, connection: Connection, opened: Vec<Option<Stream>>) {
        let (mut tasks, mut opened) = (JoinSet::new(), opened.into_iter());
        for id in 0..self.forwards.len() {
            let (remote, connection, stream) = (Arc::clone(&self), connection.clone(), opened.next());
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

    /// Asks for one port until it is open, and again whenever the far side closes it. `asked` has the result
    /// of [`Remote::open_all`], if it was called.
    async fn keep_open(&self, connection: &Connection, id: usize, asked: Option<Option<Stream>>) {
        let Some(forward) = self.forwards.get(id) else { return };
        let mut is_told = asked.as_ref().is_some_and(Option::is_none);
        let mut stream = asked.flatten();
        if is_told {
            sleep(PAUSE).await;
        }
        loop {
            match &mut stream {
                // The far side sends nothing after its answer. Its end says that the port is closed.
                Some(open) => {
                    if open.read(&mut [0]).await.is_err() {
                        return;
                    }
                    (self.report)(&News::FarClosed { port: forward.listen });
                    stream = None;
                }
                None => match self.open(connection, id, forward).await {
                    Ok(Ok(opened)) => {
                        (stream, is_told) = (Some(opened), false);
                        continue;
                    }
                    Ok(Err(answer)) if !is_told => {
                        (self.report)(&News::FarRefused { port: forward.listen, answer: &answer });
                        is_told = true;
                    }
                    Ok(Err(_)) => {}
                    // The connection is lost.
                    Err(_) => return,
                },
            }
            sleep(PAUSE).await;
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
        (self.report)(&News::FarListening { port: &answer.detail, to: &forward.target });
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
        let (carried, target) = (Copied::default(), &forward.target);
        let ended = outward::carry(stream, target, &self.allowed, connection.share(), &carried).await;
        tell(&self.report, peer, &target.to_string(), &carried, ended);
    }
}
