//! The end of a tunnel that waits for connections.

use std::sync::Arc;
use std::time::Instant;

use tidewire::{Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Event as Common, Role};
use tidewire_tunnel::{AdmitError, Hub, admit};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::state::Event;
use crate::session;

/// Accepts connections while it is polled. Accepted connections are carried until `stop` is dropped.
///
/// # Errors
/// The endpoint has stopped.
pub async fn serve(
    endpoint: &Endpoint,
    hub: &Arc<Hub>,
    console: &Console,
    stop: &watch::Sender<()>,
    serving: &mut JoinSet<()>,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            accepted = endpoint.accept() => {
                let connection = accepted.or_exit(Exit::Other)?;
                serving.spawn(serve_one(connection, Arc::clone(hub), console.clone(), stop.subscribe()));
            }
            Some(_) = serving.join_next() => {}
        }
    }
}

async fn serve_one(connection: Connection, hub: Arc<Hub>, console: Console, mut stopped: watch::Receiver<()>) {
    let begun = Instant::now();
    let peer = connection.remote().to_string();
    console.event(&Common::Connected { peer: peer.clone() });
    let reason = tokio::select! {
        reason = carry(&connection, &hub, &console) => reason,
        // Nothing is ever sent here: `changed` returns when the sender is dropped.
        _ = stopped.changed() => "the tunnel is taken down".to_owned(),
    };
    console.event(&Event::Lost { peer: &peer, reason });
    let stats = connection.stats();
    let bytes = stats.bytes.app_sent + stats.bytes.app_received;
    console.summary(&report::summary(&stats, Role::Both, bytes, begun.elapsed()));
}

/// Answers the greeting and carries packets. Returns why that ended.
async fn carry(connection: &Connection, hub: &Hub, console: &Console) -> String {
    let from = connection.remote();
    match admit(connection, hub).await {
        Ok((peer, mtu)) => {
            console.say(&format!("{from} is connected"));
            hub.carry(&peer, connection, mtu).await.to_string()
        }
        Err(refusal @ (AdmitError::NoPeer | AdmitError::NotUnderstood)) => {
            console.warn(&format!("refused {from}: {refusal}"));
            // The answer is on its way; the peer closes when it has it.
            let _ = timeout(session::CLOSE_WAIT, connection.closed()).await;
            refusal.to_string()
        }
        Err(error) => error.to_string(),
    }
}
