//! The end of a tunnel that waits for connections: it finds the peer of each by its key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{CloseCode, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Event as Common, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::greeting::{Answer, read_greeting, write_answer};
use super::hub::Hub;
use super::peers::{Listed, Peer};
use super::state::Event;
use crate::session;

/// Time for a greeting to arrive. It follows the handshake at once, so this leaves time to repair its losses.
const GREETING_PATIENCE: Duration = Duration::from_secs(30);

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
    let greeted = async {
        let mut stream = connection.accept().await?;
        let greeting = read_greeting(&mut stream).await?;
        let found = greeting.and_then(|mtu| Ok((find(connection, hub).ok_or(Answer::NoPeer)?, mtu)));
        let answer = found.as_ref().err().copied().unwrap_or(Answer::Ready { mtu: hub.mtu() });
        write_answer(&mut stream, answer).await?;
        let _ = stream.shutdown().await;
        Ok(found)
    };
    match timeout(GREETING_PATIENCE, greeted).await {
        Ok(Ok(Ok((peer, mtu)))) => {
            console.say(&format!("{from} is connected"));
            hub.carry(&peer, connection, mtu).await.to_string()
        }
        Ok(Ok(Err(answer))) => {
            console.warn(&format!("refused {from}: {}", reason(answer)));
            // The answer is on its way; the peer closes when it has it.
            let _ = timeout(session::CLOSE_WAIT, connection.closed()).await;
            reason(answer).to_owned()
        }
        Ok(Err(error)) => {
            let error: std::io::Error = error;
            error.to_string()
        }
        Err(_) => {
            connection.close(CloseCode::Protocol, "no greeting of a tunnel came");
            "no greeting of a tunnel came".to_owned()
        }
    }
}

fn reason(answer: Answer) -> &'static str {
    match answer {
        Answer::NoPeer => "it has no networks here, or its own address is in them",
        _ => "it does not speak version 1 of the tunnel; connect with tidewire tunnel up",
    }
}

/// The peer of a connection. A peer whose own address is in its networks is none: the packets of its
/// connection would go into the tunnel. They do not if the network is the default route (`super::routes`).
fn find(connection: &Connection, hub: &Hub) -> Option<Arc<Peer>> {
    let (peers, from) = (hub.peers(), connection.remote().ip().to_canonical());
    let Listed { entry, peer } = peers.with_key(connection.peer_key())?;
    let leads_back = entry.networks.iter().any(|network| network.prefix_len() > 0 && network.contains(&from));
    (!leads_back).then(|| Arc::clone(peer))
}
