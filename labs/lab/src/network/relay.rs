//! Relays of a network: each is a [`Relay`] of the library in the namespace of its node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;

use anyhow::bail;
use tidewire::{Config, Hop, Relay, Secret, new_secret};

use super::Place;
use super::content::Run;
use super::ours::{PATIENCE, alone, ended};
use crate::nodes::Nodes;

/// Starts the relays of a flow, from the last to the first, each with a secret of its own. `next` is the
/// address of the far end and the secret of the hop to it. Returns the hop of the near end. The relays end
/// with the run.
///
/// # Errors
/// Fails if a relay cannot listen.
pub(super) fn start(
    nodes: &Nodes,
    relays: &[Place],
    next: (SocketAddr, Secret),
    run: &Arc<Run>,
) -> anyhow::Result<Hop> {
    let (mut address, mut secret) = next;
    for place in relays.iter().rev() {
        let hop = Hop { address, credentials: (&secret).into(), peer: None };
        secret = new_secret()?;
        let (tell, told) = channel();
        let listen = SocketAddr::from((place.address, 0));
        let (own, run) = (secret.clone(), Arc::clone(run));
        let relay = move || {
            std::thread::spawn(move || {
                let relaying = async {
                    let relay = Relay::bind(listen, own, hop, &Config::default())?;
                    tell.send(relay.local_addr())?;
                    ended(&run).await;
                    relay.close().await;
                    anyhow::Ok(())
                };
                alone(relaying)
            })
        };
        // A thread inherits the namespace of the one that makes it.
        let thread = nodes.inside(place.node, relay)?;
        let Ok(local) = told.recv_timeout(PATIENCE) else {
            match thread.join() {
                Ok(Err(error)) => return Err(error.context("a relay")),
                _ => bail!("a relay does not listen"),
            }
        };
        address = local;
    }
    Ok(Hop { address, credentials: secret.into(), peer: None })
}
