//! The addresses of a tunnel: our own, those of each peer, and which peer a packet belongs to.
//!
//! Each peer has networks: packets to them go to this peer, and it may send only from them (WireGuard calls
//! this cryptokey routing). Invariant: the networks of two peers do not overlap, so at most one peer has an
//! address.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::IpNet;
use tidewire::{PublicKey, TextError};

/// A peer that may be connected, and its networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The public key that it proves to own. `None` if both sides share a secret: there is one peer then.
    pub key: Option<PublicKey>,
    /// Destinations that are sent to it, and sources that it may use.
    pub networks: Vec<IpNet>,
}

/// Which peer has an address. Peers are numbers.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<IpAddr, (IpNet, usize)>);

impl Table {
    /// The networks of each peer, in order.
    ///
    /// # Errors
    /// Networks of two peers overlap.
    pub fn new<'a>(peers: impl IntoIterator<Item = &'a [IpNet]>) -> Result<Self, Overlap> {
        let mut table = Self::default();
        for (peer, networks) in peers.into_iter().enumerate() {
            for network in IpNet::aggregate(&networks.to_vec()) {
                let within = table.entry(network.addr());
                let behind = table.0.range(network.addr()..=network.broadcast()).next().map(|(_, entry)| entry);
                if let Some((other, _)) = within.or(behind) {
                    return Err(Overlap(network, *other));
                }
                table.0.insert(network.network(), (network, peer));
            }
        }
        Ok(table)
    }

    /// Number of the peer whose networks contain `address`.
    pub fn peer(&self, address: IpAddr) -> Option<usize> {
        self.entry(address).map(|(_, peer)| *peer)
    }

    fn entry(&self, address: IpAddr) -> Option<&(IpNet, usize)> {
        // No two networks overlap, so only the one that begins at or below the address can contain it.
        self.0.range(..=address).next_back().map(|(_, entry)| entry).filter(|(network, _)| network.contains(&address))
    }
}

/// Networks of two peers that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} and {1} overlap, and belong to two peers: give each address to one peer")]
pub struct Overlap(IpNet, IpNet);

/// A text that is no address or network of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is no address with a prefix length.
    #[error("{ADDRESS}")]
    NoAddress,
    /// No host of the network can have this address.
    #[error("{0} is no address of a host in this network; {ADDRESS}")]
    NoHost(IpAddr),
    /// It is no network.
    #[error("give a network, as 192.168.7.0/24 or fd00:7::/48")]
    NoNetwork,
    /// It has bits that its prefix length leaves out.
    #[error("{text} has bits behind its prefix; did you mean {meant}?")]
    BitsBehind {
        /// What was written.
        text: String,
        /// The network without these bits.
        meant: IpNet,
    },
}

const ADDRESS: &str = "give an address with its prefix length, as 10.77.0.1/24 or fd00::1/64";

/// A wrong list of peers.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {wrong}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the first wrong line.
        line: usize,
        /// What is wrong with it.
        wrong: LineError,
    },
}

/// What is wrong with a line of a list of peers.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It does not begin with a public key.
    #[error(transparent)]
    Key(#[from] TextError),
    /// A network is wrong.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A network is also one of another peer.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// It has a key alone.
    #[error("the key has no networks: add them behind it, as 10.77.0.2/32")]
    NoNetworks,
    /// An earlier line has the same key.
    #[error("this key is listed twice; remove one of the lines")]
    Twice,
}

/// An address of the tunnel with the length of its network's prefix, as `10.77.0.1/24`.
///
/// # Errors
/// What is wrong, with an example.
pub fn parse_address(text: &str) -> Result<IpNet, NetworkError> {
    let network = IpNet::from_str(text).map_err(|_| NetworkError::NoAddress)?;
    let address = network.addr();
    let is_host = network.prefix_len() + 1 >= network.max_prefix_len()
        || (address != network.network() && (network.addr().is_ipv6() || address != network.broadcast()));
    if !is_host || address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(NetworkError::NoHost(address));
    }
    Ok(network)
}

/// A network, as `192.168.7.0/24`; an address alone stands for itself.
///
/// # Errors
/// What is wrong, with the network that was probably meant.
pub fn parse_network(text: &str) -> Result<IpNet, NetworkError> {
    if let Ok(address) = IpAddr::from_str(text) {
        return Ok(address.into());
    }
    let network = IpNet::from_str(text).map_err(|_| NetworkError::NoNetwork)?;
    if network.addr() != network.network() {
        return Err(NetworkError::BitsBehind { text: text.to_owned(), meant: network.trunc() });
    }
    Ok(network)
}

/// The only peer, if both sides share a secret or we connect to a listener: it has the networks of our
/// addresses, and `routes`.
pub fn only_peer(addresses: &[IpNet], routes: &[IpNet]) -> Entry {
    let networks = addresses.iter().map(IpNet::trunc).chain(routes.iter().copied());
    Entry { key: None, networks: networks.collect() }
}

/// Reads the peers of a listener from its authorized keys: one a line, followed by the networks of the peer.
/// What is not a network ends them and is a comment.
///
/// # Errors
/// The file cannot be read, or the first wrong line as FILE:LINE.
pub fn read_peers(path: &Path) -> Result<Vec<Entry>, PeersError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|error| PeersError::Read { path: path.to_owned(), error })?;
    parse_peers(&text, path)
}

fn parse_peers(text: &str, path: &Path) -> Result<Vec<Entry>, PeersError> {
    let mut peers: Vec<Entry> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        add_line(line, &mut peers).map_err(|wrong| PeersError::Line { path: path.to_owned(), line: number, wrong })?;
    }
    Ok(peers)
}

/// Adds the peer of a line, if the line has one.
fn add_line(line: &str, peers: &mut Vec<Entry>) -> Result<(), LineError> {
    let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let Some(word) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
    let key = PublicKey::from_str(word)?;
    let begins_network =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') && word.contains(['.', ':', '/']);
    let networks = words.take_while(begins_network).map(parse_network).collect::<Result<Vec<_>, _>>()?;
    if networks.is_empty() {
        return Err(LineError::NoNetworks);
    }
    if peers.iter().any(|peer| peer.key == Some(key)) {
        return Err(LineError::Twice);
    }
    peers.push(Entry { key: Some(key), networks });
    Table::new(peers.iter().map(|peer| &peer.networks[..]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidewire::PrivateKey;

    use super::*;

    fn nets(text: &str) -> Vec<IpNet> {
        text.split_whitespace().map(|word| parse_network(word).unwrap()).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_the_peer_of_its_network() {
        let (a, b) = (nets("10.0.0.0/30 192.168.7.0/24 fd00::/64"), nets("10.0.0.4/32 fd00:0:0:1::/64 0.0.0.0/8"));
        let table = Table::new([&a[..], &b[..]]).unwrap();
        for (address, peer) in [
            ("10.0.0.3", Some(0)),
            ("10.0.0.4", Some(1)),
            ("10.0.0.5", None),
            ("192.168.7.255", Some(0)),
            ("192.168.8.0", None),
            ("fd00::ffff", Some(0)),
            ("fd00::1:0:0:0:1", Some(1)),
            ("fd00:1::", None),
            ("0.255.255.255", Some(1)),
            ("255.255.255.255", None),
            ("::", None),
        ] {
            assert_eq!(table.peer(ip(address)), peer, "{address}");
        }
    }

    #[test]
    fn overlaps_are_refused_in_either_order() {
        for (a, b) in [
            ("10.0.0.0/8", "10.1.0.0/16"),
            ("10.1.0.0/16", "10.0.0.0/8"),
            ("10.0.0.1/32", "10.0.0.1/32"),
            ("0.0.0.0/0", "10.0.0.1/32"),
            ("fd00::1/128", "::/0"),
        ] {
            let (first, second) = (nets(a), nets(b));
            assert!(Table::new([&first[..], &second[..]]).is_err(), "{a} {b}");
            assert!(Table::new([&[first, second].concat()[..]]).is_ok(), "within one peer {a} {b}");
        }
        let (v4, v6) = (nets("0.0.0.0/0"), nets("::/0"));
        assert!(Table::new([&v4[..], &v6[..]]).is_ok());
    }

    #[test]
    fn addresses_and_networks_are_told_apart() {
        for good in ["10.77.0.1/30", "10.0.0.0/31", "10.0.0.1/32", "fd00::1/64", "fd00::/127"] {
            parse_address(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for bad in
            ["10.77.0.0/30", "10.77.0.3/30", "10.77.0.1", "fd00::/64", "0.0.0.0/0", "127.0.0.1/8", "ff02::1/64", "x"]
        {
            assert!(parse_address(bad).unwrap_err().to_string().contains("10.77.0.1/24"), "{bad}");
        }
        assert!(parse_network("192.168.7.1/24").unwrap_err().to_string().ends_with("did you mean 192.168.7.0/24?"));
        assert_eq!(parse_network("10.0.0.1"), Ok("10.0.0.1/32".parse().unwrap()));
    }

    #[test]
    fn peers_are_read_with_their_networks_and_faults_have_a_place() {
        let keys: Vec<_> = (1..4).map(|n| PrivateKey::new([n; 32]).public()).collect();
        let parse = |text: &str| parse_peers(text, Path::new("peers"));
        let text =
            format!("# all\n{} 10.0.0.2/32, fd00::2/128 ann\n\n{}\t10.0.0.3 bob's 10.0.0.9/99\n", keys[0], keys[1]);
        let entry = |key: PublicKey, text: &str| Entry { key: Some(key), networks: nets(text) };
        let expected = [entry(keys[0], "10.0.0.2/32 fd00::2/128"), entry(keys[1], "10.0.0.3/32")];
        assert_eq!(parse(&text).unwrap(), expected);
        let wrong = |line: String| parse(&format!("{text}{line}")).unwrap_err().to_string();
        assert!(wrong(keys[2].to_string()).starts_with("peers:5: the key has no networks"));
        assert!(wrong(format!("{} 10.0.0.0/99", keys[2])).starts_with("peers:5: give a network"));
        assert!(wrong(format!("{} 10.0.0.0/24", keys[2])).contains("10.0.0.0/24 and 10.0.0."));
        assert!(wrong(format!("{} 10.0.0.7/32", keys[0])).starts_with("peers:5: this key is listed twice"));
        assert!(wrong("tw? 10.0.0.7/32".to_owned()).starts_with("peers:5: a public key"));
    }
}
