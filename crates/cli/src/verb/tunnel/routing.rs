//! The device and the routes of a tunnel: made, kept, and what the user is told of them.
//!
//! `tunnel up` calls [`up`] once and [`keep`] as long as the tunnel is up. Invariant: whatever the kernel or
//! another program does to device and routes, the user reads why in one sentence.

use std::sync::Arc;

use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tidewire_tunnel::{Device, DeviceError, Entry, Hub, Outer, Restored, Routes};

use super::Args;
use super::state::Event;

/// Parts that one line names. Chosen: with more, the line is longer than a screen is wide.
const MOST_NAMED: usize = 6;

/// Makes the device with its routes, past which `outer` goes.
///
/// # Errors
/// [`Exit::LocalIo`] if the device or a route cannot be had, [`Exit::Usage`] if networks of peers overlap.
pub async fn up(
    args: &Args,
    peers: Vec<Entry>,
    outer: Vec<Outer>,
    console: &Console,
) -> Result<(Arc<Hub>, Arc<Routes>), Failure> {
    let device = Device::create(&args.interface, &args.address, args.mtu).await.map_err(no_device)?;
    let routes = Arc::new(Routes::open(&device, outer, args.fail_closed).await.or_exit(Exit::LocalIo)?);
    let hub = Hub::new(device, args.address.clone(), args.mtu, peers).or_exit(Exit::Usage)?;
    let ready = async {
        compare(&hub, args, &routes, console).await?;
        routes.follow(hub.peers().networks()).await.or_exit(Exit::LocalIo)
    };
    if let Err(error) = ready.await {
        routes.close().await;
        return Err(error);
    }
    let (interface, mtu) = (hub.device().name(), args.mtu);
    let addresses: Vec<_> = args.address.iter().map(ToString::to_string).collect();
    console.say(&format!("{interface} is up with {}", addresses.join(" and ")));
    console.event(&Event::Tunnel { interface, addresses, mtu });
    Ok((Arc::new(hub), routes))
}

/// Keeps the routes until that is impossible.
///
/// # Errors
/// [`Exit::LocalIo`].
pub async fn keep(routes: &Routes, console: &Console) -> Result<(), Failure> {
    Err(Failure::new(Exit::LocalIo, routes.keep(|restored| tell(&restored, console)).await))
}

fn tell(restored: &Restored, console: &Console) {
    let parts: Vec<_> = restored.parts.iter().map(ToString::to_string).collect();
    let more = match parts.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = parts.get(..MOST_NAMED).unwrap_or(&parts).join(", ");
    console.warn(&format!("another program removed parts of the tunnel, and they are restored: {named}{more}"));
    if restored.is_last_told {
        console.warn("it does so again and again; the tunnel goes on restoring them, and says so seldom");
    }
    console.event(&Event::Restored { parts, last_told: restored.is_last_told });
}

/// Tells that the networks of `--route` stay unreachable, if the user wanted that.
pub fn tell_closed(args: &Args, console: &Console) {
    if args.fail_closed {
        console.warn("the networks of --route stay unreachable (--fail-closed); docs/tunnel.md section 5 opens them");
    }
}

/// Tells where the tunnel and the local network want the same packets, and what is left out.
async fn compare(hub: &Hub, args: &Args, routes: &Routes, console: &Console) -> Result<(), Failure> {
    let networks = || hub.peers().networks().collect::<Vec<_>>();
    if routes.leave_ipv6_out() {
        for network in networks().iter().filter(|network| network.addr().is_ipv6()) {
            console.warn(&format!("IPv6 is off on this machine, so the route {network} is left out"));
        }
    }
    let own = args.address.iter().map(|own| own.trunc());
    let mut compared: Vec<_> = own.chain(networks()).collect();
    compared.sort_unstable();
    compared.dedup();
    for beside in routes.beside(compared).await.or_exit(Exit::LocalIo)? {
        let (network, other, device) = (beside.network, beside.other, beside.device);
        if network == other {
            let message = format_args!(
                "{network} is also the network of {device}, which gets its packets: give the tunnel another network"
            );
            return Err(Failure::message(Exit::LocalIo, message));
        }
        console.warn(&format!(
            "{network} is a part of {other}, the network of {device}: its hosts there are not reached while the tunnel is up"
        ));
    }
    Ok(())
}

/// Why there is no device, and what to do.
fn no_device(error: DeviceError) -> Failure {
    let instead = "without it, `tidewire forward` carries TCP connections";
    let container = "in a container, give it `--cap-add NET_ADMIN --device /dev/net/tun` (docker, podman)";
    let message = match &error {
        DeviceError::NotPermitted => {
            format!("{error}: run as root, or `sudo setcap cap_net_admin+ep $(which tidewire)`; {container}; {instead}")
        }
        DeviceError::NoControl => format!("{error}; {container}; {instead}"),
        DeviceError::InUse(_) | DeviceError::OfAnotherKind(_) => format!("{error}: choose another --interface"),
        _ => error.to_string(),
    };
    Failure::message(Exit::LocalIo, message)
}
