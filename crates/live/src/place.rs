//! The places where datagrams come from and where they go, as players write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use super::device::Device;

/// Clock of RTP timestamps of video and of MPEG-TS, in hertz (RFC 3551 section 5, RFC 2250 section 2).
const VIDEO_CLOCK: u32 = 90_000;

/// A place; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// UDP datagrams, with or without RTP.
    Network(Network),
    /// A file of MPEG-TS packets.
    File(PathBuf),
    /// Standard input or output.
    Standard,
}

/// Where UDP datagrams come in or go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Local address of an input, or destination of an output. A multicast group is joined.
    pub address: SocketAddr,
    /// Device of a multicast group; the system's choice if there is none.
    pub interface: Option<Device>,
    /// Our own address, where it is not [`Self::address`].
    pub local: Option<IpAddr>,
    /// Hops of multicast datagrams.
    pub hops: Option<u32>,
    /// The datagrams are RTP packets, whose timestamps have this clock.
    pub rtp: Option<u32>,
}

/// What is wrong with a text that is no place, as a sentence that does not repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace(String);

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPlace {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(Network { address, rtp: None, .. }) => write!(f, "udp://{address}"),
            Self::Network(Network { address, .. }) => write!(f, "rtp://{address}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Standard => f.write_str("-"),
        }
    }
}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        if text == "-" {
            return Ok(Self::Standard);
        }
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(bad("no path follows")) } else { Ok(Self::File(path.into())) };
        }
        match text.split_once("://") {
            Some(("udp", rest)) => network(rest, None).map(Self::Network),
            Some(("rtp", rest)) => network(rest, Some(VIDEO_CLOCK)).map(Self::Network),
            Some((scheme, _)) => Err(bad(format!("{scheme}:// is not known"))),
            None => Err(bad("it names no kind of place")),
        }
    }
}

fn bad(wrong: impl Into<String>) -> BadPlace {
    BadPlace(wrong.into())
}

/// Parses `ADDRESS:PORT?KEY=VALUE&...`. As in other players, an `@` may precede the address.
fn network(text: &str, rtp: Option<u32>) -> Result<Network, BadPlace> {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let address = resolve(address.strip_prefix('@').unwrap_or(address).trim_end_matches('/'))?;
    let mut network = Network { address, interface: zone(text), local: None, hops: None, rtp };
    let mut is_grouped = false;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |wanted: &str| bad(format!("{key}=`{value}` is not {wanted}"));
        match key {
            "interface" => {
                let device = Device::parse(value);
                network.interface = Some(device.ok_or_else(|| wrong("the name or the IPv4 address of an interface"))?);
                is_grouped = true;
            }
            "ttl" => {
                let hops = value.parse::<u32>().ok().filter(|hops| (1..=255).contains(hops));
                network.hops = Some(hops.ok_or_else(|| wrong("a number of hops from 1 to 255"))?);
            }
            "clock" if rtp.is_some() => {
                let clock = value.parse::<u32>().ok().filter(|clock| (1_000..=1_000_000).contains(clock));
                network.rtp = Some(clock.ok_or_else(|| wrong("a clock from 1000 to 1000000 Hz"))?);
            }
            "localaddr" => {
                let local: IpAddr = value.parse().map_err(|_| wrong("an address of this machine"))?;
                if local.is_ipv4() != address.is_ipv4() {
                    return Err(wrong("of the same version of IP"));
                }
                network.local = Some(local);
            }
            // Datagrams keep their lengths here, so there is nothing to set.
            "pkt_size" => {
                let size = value.parse::<u32>().ok().filter(|size| (1..=65_535).contains(size));
                size.ok_or_else(|| wrong("a size from 1 to 65535 bytes"))?;
            }
            _ => {
                let known = "known are interface=, localaddr=, pkt_size=, ttl=, and with rtp:// clock=";
                return Err(bad(format!("{key}= is not known: {known}")));
            }
        }
    }
    if is_grouped && !address.ip().is_multicast() {
        return Err(bad("interface= is for multicast groups only"));
    }
    if let (true, None, Some(IpAddr::V4(local))) = (address.ip().is_multicast(), &network.interface, network.local) {
        network.interface = Some(Device::Address(local));
    }
    Ok(network)
}

/// The device that an IPv6 address names behind a `%`.
fn zone(text: &str) -> Option<Device> {
    let (_, zone) = text.strip_prefix('@').unwrap_or(text).strip_prefix('[')?.split_once(']')?.0.split_once('%')?;
    Device::parse(zone).filter(|device| matches!(device, Device::Name(_)))
}

/// Finds the address of `HOST:PORT`. Without a host, it is every local IPv4 address. A name may take the
/// system long: call this in a thread that nobody waits for (`tidewire::names::apart`).
///
/// # Errors
/// See [`BadPlace`].
pub fn resolve(text: &str) -> Result<SocketAddr, BadPlace> {
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_| bad(format!("`{port}` is not a port")))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    // An address with a zone, as in [fe80::1%eth0]:5000: the system takes it without brackets only.
    let zoned = text.strip_prefix('[').and_then(|rest| rest.split_once("]:")).filter(|(host, _)| host.contains('%'));
    let zoned = zoned.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    #[expect(clippy::disallowed_methods, reason = "the verb parses places in a thread that nobody waits for")]
    let found = zoned.map_or_else(|| text.to_socket_addrs(), |zoned| zoned.to_socket_addrs());
    let mut found = found.map_err(|error| bad(format!("no address and port: {error}")))?;
    found.next().ok_or_else(|| bad("the name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        match text.parse::<Place>() {
            Ok(Place::Network(network)) => network,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn places_are_found_as_players_write_them() {
        let plain =
            Network { address: ([0, 0, 0, 0], 5000).into(), interface: None, local: None, hops: None, rtp: None };
        let pkt_size = "udp://:5000?pkt_size=1316";
        for text in ["udp://:5000", "udp://@:5000", "udp://0.0.0.0:5000", "udp://@0.0.0.0:5000/", pkt_size] {
            assert_eq!(network(text), plain, "{text}");
        }
        let group = network("udp://@239.1.2.3:5004?interface=10.0.0.7&ttl=4");
        let address = Some(Device::Address(Ipv4Addr::new(10, 0, 0, 7)));
        let wanted: (SocketAddr, _, Option<u32>, Option<u32>) =
            (([239, 1, 2, 3], 5004).into(), address.clone(), Some(4), None);
        assert_eq!((group.address, group.interface, group.hops, group.rtp), wanted);
        let eth0 = Some(Device::Name("eth0".to_owned()));
        assert_eq!(network("udp://239.1.2.3:1?interface=eth0").interface, eth0);
        assert_eq!(zone("[ff15::1%eth0]:1"), eth0);
        assert_eq!((zone("[ff15::1%3]:1"), zone("[ff15::1]:1"), zone("a%eth0:1")), (None, None, None));
        let local = network("udp://239.1.2.3:1?localaddr=10.0.0.7&pkt_size=1316");
        assert_eq!((local.interface, local.local), (address, Some([10, 0, 0, 7].into())));
        let local = network("udp://192.0.2.1:1?localaddr=10.0.0.7");
        assert_eq!((local.interface, local.local), (None, Some([10, 0, 0, 7].into())));
        assert_eq!((network("rtp://:1").rtp, network("rtp://:1?clock=48000").rtp), (Some(90_000), Some(48_000)));
        assert_eq!(network("udp://[::1]:7").address, "[::1]:7".parse().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(network("udp://[fe80::1%lo]:7").address, "[fe80::1%1]:7".parse().unwrap());
        assert_eq!("-".parse::<Place>().unwrap(), Place::Standard);
        for text in ["file:/a/b.ts", "file:///a/b.ts"] {
            assert_eq!(text.parse::<Place>().unwrap(), Place::File("/a/b.ts".into()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_place_is_said() {
        for (text, wanted) in [
            ("udp://x", "no address and port"),
            ("udp://:70000", "not a port"),
            ("udp://127.0.0.1:1?interface=10.0.0.1", "multicast groups only"),
            ("udp://:1?clock=8000", "clock= is not known"),
            ("udp://:1?ttl=0", "from 1 to 255"),
            ("udp://239.1.2.3:1?interface=10.0.0", "name or the IPv4 address"),
            ("udp://:1?localaddr=eth0", "address of this machine"),
            ("udp://:1?localaddr=::1", "same version"),
            ("udp://:1?pkt_size=no", "from 1 to 65535"),
            ("rtp://:1?clock=5", "1000 to 1000000"),
            ("http://h:1", "http:// is not known"),
            ("video.ts", "no kind of place"),
            ("file:", "no path"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
