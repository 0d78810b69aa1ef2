//! One output of a receiver: a socket, a file or a pipe.
//!
//! The thread of [`super::output`] writes into it. Invariant: an error of a socket is that of one datagram,
//! and the output goes on ([`Refusals`]); an error of a file or pipe ends the receiver, because the datagrams
//! after a part of one would be worth nothing.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::place::{Network, Place};
use super::refusals::Refusals;

/// Pause before a pipe that has no room is asked again. Chosen: less than datagrams are apart.
const PAUSE: Duration = Duration::from_millis(1);

/// Where datagrams of a program go.
#[derive(Debug)]
pub struct Sink {
    name: String,
    to: To,
}

#[derive(Debug)]
enum To {
    /// To a socket; a player that does not listen yet refuses them.
    Socket(Box<Outlet>),
    /// Into a file or to standard output.
    Stream(Box<dyn WriteSend>),
}

/// A socket, and what it is made from.
#[derive(Debug)]
struct Outlet {
    network: Network,
    socket: UdpSocket,
    to: SocketAddr,
    refusals: Refusals,
}

/// What a stream of bytes is written to.
trait WriteSend: Write + Send + std::fmt::Debug {}

impl<W: Write + Send + std::fmt::Debug> WriteSend for W {}

/// Why a datagram did not leave.
#[derive(Debug)]
pub enum NotWritten {
    /// The system refused this one. The error is there if it has to be named.
    Refused(Option<io::Error>),
    /// The output is over.
    Failed(io::Error),
}

impl Sink {
    /// Opens the output at a place.
    ///
    /// # Errors
    /// The file cannot be made, or the address cannot be sent to.
    pub fn open(place: &Place) -> io::Result<Self> {
        let to = match place {
            Place::Network(network) => {
                let ((socket, to), refusals) = (socket(network)?, Refusals::default());
                To::Socket(Box::new(Outlet { network: network.clone(), to, socket, refusals }))
            }
            Place::File(path) => To::Stream(Box::new(File::create(path)?)),
            Place::Standard => To::Stream(Box::new(io::stdout())),
        };
        Ok(Self { name: place.to_string(), to })
    }

    /// An output that writes the datagrams one after the other.
    pub fn writer(to: impl Write + Send + std::fmt::Debug + 'static) -> Self {
        Self { name: "writer".to_owned(), to: To::Stream(Box::new(to)) }
    }

    /// Names it for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes a datagram.
    ///
    /// # Errors
    /// See [`NotWritten`].
    pub(crate) fn write(&mut self, datagram: &[u8]) -> Result<(), NotWritten> {
        match &mut self.to {
            To::Socket(outlet) => outlet.send(Instant::now(), datagram).map_err(NotWritten::Refused),
            To::Stream(to) => write_whole(to, datagram).map_err(NotWritten::Failed),
        }
    }
}

impl Outlet {
    fn send(&mut self, now: Instant, datagram: &[u8]) -> Result<(), Option<io::Error>> {
        let error = match self.socket.send_to(datagram, self.to) {
            Ok(_) => {
                self.refusals.on_success();
                return Ok(());
            }
            Err(error) => error,
        };
        let is_named = self.refusals.on_refusal(now);
        if self.refusals.should_renew(now)
            && let Ok(anew) = socket(&self.network)
        {
            (self.socket, self.to) = anew;
        }
        Err(is_named.then_some(error))
    }
}

/// Writes all bytes, also to a pipe that another program has made non-blocking.
fn write_whole(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = if bytes.is_empty() { to.flush().map(|()| 0) } else { to.write(bytes) };
        match written {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
}

/// A socket that sends to an address or a group, and the address with the number of its device.
fn socket(network: &Network) -> io::Result<(UdpSocket, SocketAddr)> {
    let Network { address, interface, local, hops, .. } = network;
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local.unwrap_or(any), 0))?;
    let to = interface.as_ref().map_or(Ok(*address), |device| device.scope(&socket, *address))?;
    let options = SockRef::from(&socket);
    match (address.is_ipv4() && address.ip().is_multicast(), hops) {
        (true, hops) => {
            if let Some(device) = interface {
                device.send_v4(&socket)?;
            }
            options.set_multicast_ttl_v4(hops.unwrap_or(1))?;
        }
        (false, Some(hops)) if address.is_ipv4() => options.set_ttl_v4(*hops)?,
        (false, Some(hops)) if address.ip().is_multicast() => options.set_multicast_hops_v6(*hops)?,
        (false, Some(hops)) => options.set_unicast_hops_v6(*hops)?,
        (false, None) => {}
    }
    Ok((socket, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system refuses it, whatever the network: longer than any IPv4 packet.
    const TOO_LONG: usize = 65_520;

    fn sink() -> (UdpSocket, Sink) {
        let player = UdpSocket::bind("127.0.0.1:0").unwrap();
        player.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let place = format!("udp://{}", player.local_addr().unwrap()).parse().unwrap();
        (player, Sink::open(&place).unwrap())
    }

    #[test]
    fn a_datagram_that_the_system_refuses_is_one_datagram() {
        let (player, mut sink) = sink();
        sink.write(b"before").unwrap();
        for _ in 0..3 {
            // It has worked, so one refusal is not worth a sentence.
            let refused = sink.write(&[0; TOO_LONG]).unwrap_err();
            assert!(matches!(refused, NotWritten::Refused(None)), "{refused:?}");
        }
        sink.write(b"after").unwrap();
        let mut datagram = [0; 100];
        for wanted in [&b"before"[..], b"after"] {
            let length = player.recv(&mut datagram).unwrap();
            assert_eq!(&datagram[..length], wanted);
        }
    }

    #[test]
    fn an_output_where_nothing_ever_passed_is_named_at_once() {
        let (_player, mut sink) = sink();
        let refused = sink.write(&[0; TOO_LONG]).unwrap_err();
        assert!(matches!(refused, NotWritten::Refused(Some(_))), "{refused:?}");
        let refused = sink.write(&[0; TOO_LONG]).unwrap_err();
        assert!(matches!(refused, NotWritten::Refused(None)), "{refused:?}");
    }

    #[test]
    fn options_of_a_place_are_those_of_its_socket() {
        let open = |place: &str| match Sink::open(&place.parse().unwrap()).unwrap().to {
            To::Socket(outlet) => outlet.socket,
            To::Stream(_) => panic!("{place}"),
        };
        let socket = open("udp://127.0.0.1:9?localaddr=127.0.0.5&pkt_size=1316");
        assert_eq!(socket.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 5]));
        let socket = open("udp://239.255.77.5:9?localaddr=127.0.0.1&ttl=7");
        let options = SockRef::from(&socket);
        assert_eq!(options.multicast_if_v4().unwrap(), Ipv4Addr::LOCALHOST);
        assert_eq!(options.multicast_ttl_v4().unwrap(), 7);
        assert!(Sink::open(&"udp://239.255.77.5:9?interface=no-such-if".parse().unwrap()).is_err());
    }

    #[test]
    fn refusals_that_last_make_the_socket_anew() {
        let (player, mut sink) = sink();
        let To::Socket(outlet) = &mut sink.to else { panic!("{sink:?}") };
        let now = Instant::now();
        outlet.send(now, b"one").unwrap();
        // A socket whose device is gone refuses everything, and here one of the other family of addresses
        // does.
        outlet.socket = UdpSocket::bind("[::1]:0").unwrap();
        let mut datagram = [0; 100];
        for (after, passes) in [(0, false), (500, false), (1_000, false), (1_001, true)] {
            let sent = outlet.send(now + Duration::from_millis(after), b"two");
            assert_eq!(sent.is_ok(), passes, "{after}: {sent:?}");
        }
        assert_eq!(player.recv(&mut datagram).unwrap(), 3);
        assert_eq!(player.recv(&mut datagram).unwrap(), 3);
    }

    /// Takes few bytes at a time, and between them says that it has no room, or was interrupted.
    #[derive(Debug, Default)]
    struct Slow {
        calls: usize,
        bytes: Vec<u8>,
        flushed: usize,
    }

    impl Slow {
        fn refuses(&mut self) -> io::Result<()> {
            self.calls += 1;
            match self.calls % 3 {
                0 => Ok(()),
                1 => Err(ErrorKind::WouldBlock.into()),
                _ => Err(ErrorKind::Interrupted.into()),
            }
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.refuses()?;
            let length = bytes.len().min(10);
            self.bytes.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.refuses()?;
            self.flushed = self.bytes.len();
            Ok(())
        }
    }

    #[test]
    fn a_pipe_without_room_gets_all_bytes_of_a_datagram() {
        let (mut pipe, datagram) = (Slow::default(), (0..188).collect::<Vec<u8>>());
        write_whole(&mut pipe, &datagram).unwrap();
        assert_eq!((pipe.flushed, pipe.bytes), (188, datagram));
    }
}
