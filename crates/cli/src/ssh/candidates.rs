//! The addresses at which a far end may be reached.
//!
//! [`start`](super::start) calls it once. The far end names the address that ssh connected to, as its machine
//! sees it. Behind an address translator that is a private address, so the addresses of the name that ssh
//! connected to follow.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use tidewire::link::Link;
use tidewire::names;
use tidewire_command::exit::{Exit, Failure};
use tokio::process::Command;

use super::host::Host;

/// Limit of addresses of a name. Chosen: one of each family, and one to spare; the far end has its own
/// besides.
const MOST: usize = 3;

/// Copies of `link`, which the far end handed over, one for each address: the first, and the others.
///
/// # Errors
/// [`Exit::Unreachable`] if neither the far end nor the name has an address.
pub async fn candidates(link: Link, host: &Host, name: &str) -> Result<(Link, Vec<Link>), Failure> {
    let found = names::resolve(name, link.port).await.unwrap_or_default();
    let named: Vec<IpAddr> = found.iter().take(MOST).map(SocketAddr::ip).collect();
    let mut links = choose(&link.host, &named).into_iter().map(|host| Link { host, ..link.clone() });
    let first = links.next().ok_or_else(|| {
        Failure::message(
            Exit::Unreachable,
            format_args!(
                "ssh reached {host}, but neither sshd there (SSH_CONNECTION) nor the name `{name}` tells an address \
                 for UDP; name one with `host` in the far side's settings (docs/config.md)"
            ),
        )
    })?;
    Ok((first, links.collect()))
}

/// The hosts to try. `handed` is that of the far end, `named` what the name leads to.
fn choose(handed: &str, named: &[IpAddr]) -> Vec<String> {
    let address = handed.parse::<IpAddr>().ok();
    if address.is_some_and(|address| named.contains(&address)) {
        return vec![handed.to_owned()];
    }
    let first = Some(handed.to_owned()).filter(|_| !address.is_some_and(|address| address.is_unspecified()));
    first.into_iter().chain(named.iter().map(IpAddr::to_string)).collect()
}

/// The name or address that ssh connects to, by the user's own configuration (`ssh -G`). It is `host` itself
/// if the command is not OpenSSH's.
pub async fn real_name(ssh: &[String], host: &Host) -> String {
    let typed = || host.name().to_owned();
    let [program, arguments @ ..] = ssh else { return typed() };
    let mut asking = Command::new(program);
    asking.args(arguments).args(["-G", host.as_str()]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let Ok(answer) = asking.output().await else { return typed() };
    let text = String::from_utf8_lossy(&answer.stdout);
    let name = text.lines().find_map(|line| line.strip_prefix("hostname ")).map(str::trim);
    name.filter(|_| answer.status.success()).map_or_else(typed, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_ssh_comes_first_and_the_name_follows_unless_it_is_the_same() {
        let named: Vec<IpAddr> = ["198.51.100.7", "2001:db8::7"].map(|ip| ip.parse().unwrap()).into();
        assert_eq!(choose("198.51.100.7", &named), ["198.51.100.7"]);
        assert_eq!(choose("10.0.0.7", &named), ["10.0.0.7", "198.51.100.7", "2001:db8::7"]);
        assert_eq!(choose("0.0.0.0", &named), ["198.51.100.7", "2001:db8::7"]);
        assert_eq!(choose("::", &named[..1]), ["198.51.100.7"]);
        assert_eq!(choose("far.example", &[]), ["far.example"]);
        assert!(choose("0.0.0.0", &[]).is_empty());
    }
}
