//! How the verbs `forward` and `serve` say what [`tidewire_forward`] tells them.

use std::sync::Arc;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::{Console, Event as Common};
use tidewire_forward::header::{Answer, Code};
use tidewire_forward::{Carried, ForwardError, News, Report};

/// The event of a forwarded connection.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A forwarded TCP connection ended, or a request for one was refused.
    Forwarded {
        /// At `forward` the TCP client, at `serve` the tidewire client.
        peer: String,
        /// The target that it asked for. At `serve`, a TCP connection to an open port has that port here.
        target: &'a str,
        /// Whether both directions ended in order.
        ok: bool,
        /// Bytes written toward the target.
        there_bytes: u64,
        /// Bytes written back from the target.
        back_bytes: u64,
        /// The error, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

/// Writes news as events or sentences.
pub fn report(console: &Console) -> Report {
    let console = console.clone();
    Arc::new(move |news| tell(&console, news))
}

fn tell(console: &Console, news: &News<'_>) {
    let listening = |listening: String, to: String, far: bool| {
        let of = if far { " of the far side" } else { "" };
        console.say(&format!("{listening}{of} leads to {to}"));
        console.event(&Common::Listening { listening, to, far });
    };
    match news {
        News::Listening { port, to } => listening(port.to_string(), (*to).to_owned(), false),
        News::FarListening { port, to } => listening((*port).to_owned(), to.to_string(), true),
        News::Closed { port } => console.say(&format!("{port} is closed")),
        News::FarClosed { port } => console.warn(&format!("-R {port}: the far side has closed the port")),
        News::FarRefused { port, answer } => console.warn(&format!("-R {port}: {answer}; trying again")),
        News::CannotAccept { port, error } => console.warn(&format!("{port}: cannot accept: {error}")),
        News::Full { most } => {
            console.warn(&format!("{most} TCP connections are open, the most at one time; further ones wait"));
        }
        News::NotUnderstood { peer, answer } => console.warn(&format!("{peer}: {answer}")),
        News::Carried(carried) => ended(console, carried),
    }
}

fn ended(console: &Console, carried: &Carried<'_>) {
    let Carried { peer, target, there_bytes, back_bytes, ended } = carried;
    let detail = ended.as_ref().err().map(ToString::to_string);
    if let (Some(failure), false) = (&detail, console.json()) {
        console.warn(&format!("{peer} -> {target}: {failure}"));
    }
    console.event(&Event::Forwarded {
        peer: peer.to_string(),
        target,
        ok: ended.is_ok(),
        there_bytes: *there_bytes,
        back_bytes: *back_bytes,
        detail,
    });
}

/// The exit code for an end of `forward`.
pub fn failure(error: ForwardError) -> Failure {
    let exit = match &error {
        ForwardError::Refused { answer, .. } => exit_of(answer),
        ForwardError::Listen { .. } | ForwardError::Input(_) | ForwardError::Output(_) => Exit::LocalIo,
        ForwardError::NotForwarding(_) => Exit::Other,
        ForwardError::Lost(_) => Exit::Unreachable,
    };
    Failure::new(exit, error)
}

fn exit_of(answer: &Answer) -> Exit {
    const CODES: [(Code, Exit); 6] = [
        (Code::NotAllowed, Exit::Authentication),
        (Code::NotListening, Exit::LocalIo),
        (Code::InUse, Exit::LocalIo),
        (Code::Refused, Exit::Unreachable),
        (Code::Unreachable, Exit::Unreachable),
        (Code::Reset, Exit::Unreachable),
    ];
    CODES.iter().find(|(code, _)| answer.is(*code)).map_or(Exit::Other, |(_, exit)| *exit)
}
