//! The places that `tidewire live` is given: where datagrams come from and where they go.
//!
//! The verb parses each argument once. Invariant: an error names the argument and a form that works.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use tidewire::link::Link;

use crate::link;

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
    /// The other end of tidewire, which listens.
    Link(Box<Link>),
    /// The other end of tidewire, which connects to this address.
    Listen(SocketAddr),
}

/// Where UDP datagrams come in or go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Local address of an input, or destination of an output. A multicast group is joined.
    pub address: SocketAddr,
    /// Address of the interface of a multicast group; the system's choice if there is none.
    pub interface: Option<Ipv4Addr>,
    /// Hops of multicast datagrams.
    pub hops: Option<u32>,
    /// The datagrams are RTP packets, whose timestamps have this clock.
    pub rtp: Option<u32>,
}

/// Why a text is no place.
#[derive(Debug)]
pub struct BadPlace {
    text: String,
    wrong: String,
}

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, wrong } = self;
        write!(
            f,
            "`{text}`: {wrong}; write udp://ADDRESS:PORT, rtp://ADDRESS:PORT, file:PATH, `-`, a link \
             (tidewire://...#...), or tidewire://ADDRESS:PORT to wait for the other end"
        )
    }
}

impl std::error::Error for BadPlace {}

impl Place {
    /// Whether this is the way to the other end.
    pub fn is_tidewire(&self) -> bool {
        matches!(self, Self::Link(_) | Self::Listen(_))
    }
}

impl fmt::Display for Place {
    /// Names it without the secret of a link.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(Network { address, rtp: None, .. }) => write!(f, "udp://{address}"),
            Self::Network(Network { address, .. }) => write!(f, "rtp://{address}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Standard => f.write_str("-"),
            Self::Link(link) => write!(f, "tidewire://{}:{}", link.host, link.port),
            Self::Listen(address) => write!(f, "tidewire://{address}"),
        }
    }
}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        // A text with a secret is never repeated.
        let bad = |wrong: String| {
            let text = text.split(['#', '?']).next().unwrap_or_default().to_owned();
            BadPlace { text, wrong }
        };
        if text == "-" {
            return Ok(Self::Standard);
        }
        if text.starts_with('@') || (text.starts_with("tidewire://") && text.contains('#')) {
            let link = link::from_argument(text).map_err(|error| bad(format!("{error:#}")))?;
            return Ok(Self::Link(Box::new(link)));
        }
        if let Some(address) = text.strip_prefix("tidewire://") {
            return Ok(Self::Listen(resolve(address.trim_end_matches('/')).map_err(bad)?));
        }
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(bad("no path follows".into())) } else { Ok(Self::File(path.into())) };
        }
        match text.split_once("://") {
            Some(("udp", rest)) => network(rest, None).map(Self::Network).map_err(bad),
            Some(("rtp", rest)) => network(rest, Some(VIDEO_CLOCK)).map(Self::Network).map_err(bad),
            Some((scheme, _)) => Err(bad(format!("{scheme}:// is not known"))),
            None => Err(bad("it names no kind of place".into())),
        }
    }
}

/// Parses `ADDRESS:PORT?KEY=VALUE&...`. As in other players, an `@` may precede the address.
fn network(text: &str, rtp: Option<u32>) -> Result<Network, String> {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let address = resolve(address.strip_prefix('@').unwrap_or(address).trim_end_matches('/'))?;
    let mut network = Network { address, interface: None, hops: None, rtp };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |wanted: &str| format!("{key}=`{value}` is not {wanted}");
        match key {
            "interface" => {
                network.interface = Some(value.parse().map_err(|_| wrong("the IPv4 address of an interface"))?);
            }
            "ttl" => {
                let hops = value.parse::<u32>().ok().filter(|hops| (1..=255).contains(hops));
                network.hops = Some(hops.ok_or_else(|| wrong("a number of hops from 1 to 255"))?);
            }
            "clock" if rtp.is_some() => {
                let clock = value.parse::<u32>().ok().filter(|clock| (1_000..=1_000_000).contains(clock));
                network.rtp = Some(clock.ok_or_else(|| wrong("a clock from 1000 to 1000000 Hz"))?);
            }
            _ => return Err(format!("{key}= is not known: known are interface=, ttl=, and with rtp:// clock=")),
        }
    }
    if network.interface.is_some() && !address.ip().is_multicast() {
        return Err("interface= is for multicast groups only".into());
    }
    Ok(network)
}

/// Finds the address of `HOST:PORT`. Without a host, it is every local IPv4 address.
fn resolve(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    let mut found = text.to_socket_addrs().map_err(|error| format!("no address and port: {error}"))?;
    found.next().ok_or_else(|| "the name has no address".to_owned())
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
        let plain = Network { address: ([0, 0, 0, 0], 5000).into(), interface: None, hops: None, rtp: None };
        for text in ["udp://:5000", "udp://@:5000", "udp://0.0.0.0:5000", "udp://@0.0.0.0:5000/"] {
            assert_eq!(network(text), plain, "{text}");
        }
        let group = network("udp://@239.1.2.3:5004?interface=10.0.0.7&ttl=4");
        let wanted: (SocketAddr, _, Option<u32>, Option<u32>) =
            (([239, 1, 2, 3], 5004).into(), Some(Ipv4Addr::new(10, 0, 0, 7)), Some(4), None);
        assert_eq!((group.address, group.interface, group.hops, group.rtp), wanted);
        assert_eq!((network("rtp://:1").rtp, network("rtp://:1?clock=48000").rtp), (Some(90_000), Some(48_000)));
        assert_eq!(network("udp://[::1]:7").address, "[::1]:7".parse().unwrap());
        assert_eq!("-".parse::<Place>().unwrap(), Place::Standard);
        for text in ["file:/a/b.ts", "file:///a/b.ts"] {
            assert_eq!(text.parse::<Place>().unwrap(), Place::File("/a/b.ts".into()));
        }
        assert_eq!("tidewire://0.0.0.0:7700".parse::<Place>().unwrap(), Place::Listen(([0, 0, 0, 0], 7700).into()));
    }

    #[test]
    fn a_wrong_place_is_named_with_what_works_and_without_a_secret() {
        for (text, wanted) in [
            ("udp://x", "no address and port"),
            ("udp://:70000", "not a port"),
            ("udp://127.0.0.1:1?interface=10.0.0.1", "multicast groups only"),
            ("udp://:1?clock=8000", "clock= is not known"),
            ("udp://:1?ttl=0", "from 1 to 255"),
            ("rtp://:1?clock=5", "1000 to 1000000"),
            ("http://h:1", "http:// is not known"),
            ("video.ts", "no kind of place"),
            ("file:", "no path"),
            ("srt://:9000?passphrase=tws1secret", "srt:// is not known"),
            ("tidewire://h:1/#tws1secret", "tidewire://h:1/`"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("udp://ADDRESS:PORT"), "{text}: {error}");
            assert!(!error.contains("tws1secret"), "{error}");
        }
    }
}
