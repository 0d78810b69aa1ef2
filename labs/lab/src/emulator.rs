//! The links between the nodes in real time: IP packets from one TUN device, through a [`DuplexLink`], into
//! the other device.
//!
//! The verbs of the lab start it after the nodes. One thread does everything: it gives each packet to the
//! link with the time at which it was read, and sleeps until the next delivery is due or a packet arrives.
//! Invariants: a packet is never handed on before the link says so, and its lateness is counted. Packets are
//! carried unchanged, so ECN marks and checksums are those of the hosts.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidewire_proto::Time;
use tidewire_sim::duplex::{DuplexConfig, DuplexLink};
use tidewire_sim::link::{Corruption, IPV4_UDP_HEADERS, Link, LinkStats, share_media};
use tidewire_sim::network::LinkSample;
use tidewire_sim::series::Series;

use crate::late::Late;
use tidewire_proxy::carrier::{Carrier, Spare};
use tidewire_proxy::punctual::be_prompt;

/// Longest IP packet (RFC 791 section 3.1).
const MAX_PACKET: usize = 65_535;
/// Packets read from one device before deliveries have their turn: about 20 us of reading.
const BATCH: usize = 16;
/// Longest time until a request to stop is noticed.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Counts of the emulator.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The links in their order, each forward (from the near host to the far one) and back.
    pub links: Vec<[LinkStats; 2]>,
    /// The queues of the links over time, if that was asked for.
    pub samples: Vec<[Vec<LinkSample>; 2]>,
    /// When the first link took each packet from the near host, as far as that was asked for.
    pub entered: Vec<Time>,
    /// Packets that the kernel refused.
    pub refused: u64,
    /// Lateness of handed-on packets.
    pub late: Late,
}

impl Counts {
    /// The first link's direction from the near host to the far one.
    pub fn forward(&self) -> LinkStats {
        self.links.first().map_or_else(LinkStats::default, |[forward, _]| *forward)
    }

    /// The first link's direction from the far host to the near one.
    pub fn back(&self) -> LinkStats {
        self.links.first().map_or_else(LinkStats::default, |[_, back]| *back)
    }
}

/// A running emulator. It stops when dropped.
#[derive(Debug)]
pub struct Emulator {
    start: Instant,
    carrier: Carrier<Counts>,
}

impl Emulator {
    /// Starts to carry packets between the devices of the near and the far host.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start(near: OwnedFd, far: OwnedFd, config: &DuplexConfig) -> io::Result<Self> {
        Self::start_all([([near, far], config)], None)
    }

    /// The same; notes when the first `entries` packets from the near host came to the link.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start_noting(near: OwnedFd, far: OwnedFd, config: &DuplexConfig, entries: usize) -> io::Result<Self> {
        Self::start_with([([near, far], config)], None, entries)
    }

    /// Starts to carry packets over several links, each with its two devices. Links of one medium take turns.
    /// The queues are sampled after each `sample`, if that is set.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start_all<'a>(
        links: impl IntoIterator<Item = ([OwnedFd; 2], &'a DuplexConfig)>,
        sample: Option<Duration>,
    ) -> io::Result<Self> {
        Self::start_with(links, sample, 0)
    }

    fn start_with<'a>(
        links: impl IntoIterator<Item = ([OwnedFd; 2], &'a DuplexConfig)>,
        sample: Option<Duration>,
        entries: usize,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let wire = |([near, far], config): ([OwnedFd; 2], &DuplexConfig)| Wire {
            near,
            far,
            headers: [config.forward.headers, config.back.headers],
            link: DuplexLink::new(config),
        };
        let mut wires: Vec<_> = links.into_iter().map(wire).collect();
        share_media(wires.iter_mut().flat_map(|wire| [&mut wire.link.forward, &mut wire.link.back]));
        let series = || Series::new(sample.unwrap_or_default());
        let series = sample.map(|_| wires.iter().map(|_| [series(), series()]).collect()).unwrap_or_default();
        let (spare, scratch, entered) =
            (Spare::default(), vec![0; MAX_PACKET], Entered { most: entries, times: Vec::new() });
        let engine = Engine { wires, series, entered, start, spare, scratch };
        let carrier = Carrier::start(move |stop, counts| engine.run(stop, counts))?;
        Ok(Self { start, carrier })
    }

    /// The time that is the link's [`Time::ZERO`].
    pub fn start_time(&self) -> Instant {
        self.start
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.carrier.counts()
    }

    /// Whether it still carries packets. If not, [`stop`](Self::stop) returns why.
    pub fn is_running(&self) -> bool {
        self.carrier.is_running()
    }

    /// Stops and returns the counts.
    ///
    /// # Errors
    /// The error that ended it early, if there was one.
    pub fn stop(self) -> io::Result<Counts> {
        self.carrier.stop()
    }
}

/// One link and its devices.
struct Wire {
    near: OwnedFd,
    far: OwnedFd,
    /// Bytes that the link adds to each payload, forward and back.
    headers: [usize; 2],
    link: DuplexLink<Vec<u8>>,
}

struct Engine {
    wires: Vec<Wire>,
    /// Samples of each link's queues; empty if nobody asked.
    series: Vec<[Series<LinkSample>; 2]>,
    entered: Entered,
    start: Instant,
    spare: Spare,
    scratch: Vec<u8>,
}

/// When packets came to the first link from its near host.
struct Entered {
    /// How many are noted.
    most: usize,
    times: Vec<Time>,
}

impl Engine {
    fn run(mut self, stop: &AtomicBool, counts: &Mutex<Counts>) -> io::Result<()> {
        be_prompt();
        while !stop.load(Ordering::Relaxed) {
            let Self { wires, entered, start, spare, scratch, .. } = &mut self;
            for (n, Wire { near, far, headers: [forward, back], link }) in wires.iter_mut().enumerate() {
                let entered = if n == 0 { Some(&mut *entered) } else { None };
                read(near, &mut link.forward, *forward, *start, spare, scratch, entered)?;
                read(far, &mut link.back, *back, *start, spare, scratch, None)?;
            }
            {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                counts.links.resize(wires.len(), Default::default());
                for (n, Wire { near, far, link, .. }) in wires.iter_mut().enumerate() {
                    hand_out(&mut link.forward, far, *start, spare, &mut counts);
                    hand_out(&mut link.back, near, *start, spare, &mut counts);
                    counts.links[n] = [*link.forward.stats(), *link.back.stats()];
                }
            }
            self.sample();
            self.wait()?;
        }
        let samples = self.series.iter().map(|both| both.each_ref().map(|series| series.samples().to_vec()));
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.samples = samples.collect();
        counts.entered = self.entered.times;
        Ok(())
    }

    /// Notes the queues, if it is time.
    fn sample(&mut self) {
        let now = Time::ZERO + self.start.elapsed();
        for (Wire { link, .. }, [forward, back]) in self.wires.iter_mut().zip(&mut self.series) {
            forward.note(now, || LinkSample::of(now, &mut link.forward));
            back.note(now, || LinkSample::of(now, &mut link.back));
        }
    }

    /// Sleeps until a packet arrives or a delivery is due.
    fn wait(&self) -> io::Result<()> {
        let now = Time::ZERO + self.start.elapsed();
        let due = self.wires.iter().filter_map(|wire| wire.link.poll_timeout()).min();
        let due = due.map_or(STOP_CHECK, |at| at.since(now));
        let timeout = Timespec::try_from(due.min(STOP_CHECK)).map_err(io::Error::other)?;
        let devices = self.wires.iter().flat_map(|wire| [&wire.near, &wire.far]);
        let mut devices: Vec<_> = devices.map(|device| PollFd::new(device, PollFlags::IN)).collect();
        match poll(&mut devices, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Gives the packets of `device` to `link`.
fn read(
    device: &OwnedFd,
    link: &mut Link<Vec<u8>>,
    headers: usize,
    start: Instant,
    spare: &mut Spare,
    scratch: &mut [u8],
    mut entered: Option<&mut Entered>,
) -> io::Result<()> {
    for _ in 0..BATCH {
        let length = match rustix::io::read(device, &mut *scratch) {
            Ok(length) => length,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let packet = spare.filled(&scratch[..length]);
        // The link counts IP bytes: it adds its headers to this length.
        let supports_marks = is_capable(&packet);
        let now = Time::ZERO + start.elapsed();
        if let Some(entered) = entered.as_mut().filter(|entered| entered.times.len() < entered.most) {
            entered.times.push(now);
        }
        link.send_from(now, length.saturating_sub(headers), supports_marks, packet);
    }
    Ok(())
}

/// Writes all packets that have left `link` by now to `device`.
fn hand_out(link: &mut Link<Vec<u8>>, device: &OwnedFd, start: Instant, spare: &mut Spare, counts: &mut Counts) {
    let now = Time::ZERO + start.elapsed();
    while let Some(mut delivery) = link.poll_delivery(now) {
        if let Some(corruption) = delivery.corruption {
            corrupt(&mut delivery.payload, corruption);
        }
        if delivery.marked {
            mark(&mut delivery.payload);
        }
        counts.refused += u64::from(rustix::io::write(device, &delivery.payload).is_err());
        counts.late.add((Time::ZERO + start.elapsed()).since(delivery.at));
        spare.keep(delivery.payload);
    }
}

/// Changes one byte behind the IP and UDP headers of `packet`. The UDP checksum is removed, which RFC 768
/// allows, so that the receiver accepts the change as the link intends. The TCP checksum stays and detects
/// the change.
fn corrupt(packet: &mut [u8], corruption: Corruption) {
    let is_udp = packet.first() == Some(&IPV4_WITHOUT_OPTIONS) && packet.get(9) == Some(&UDP);
    if is_udp && packet.len() >= IPV4_UDP_HEADERS {
        packet[26..IPV4_UDP_HEADERS].fill(0);
    }
    if let Some(payload) = packet.get_mut(IPV4_UDP_HEADERS..) {
        corruption.apply(payload);
    }
}

/// Whether the sender of an IPv4 packet supports congestion marks.
fn is_capable(packet: &[u8]) -> bool {
    packet.len() >= IPV4_HEADER && packet[0] == IPV4_WITHOUT_OPTIONS && packet[1] & ECN != 0
}

/// Sets the congestion mark of an IPv4 packet whose sender supports marks, and updates the header checksum
/// (RFC 1624 equation 3).
fn mark(packet: &mut [u8]) {
    if !is_capable(packet) {
        return;
    }
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= ECN;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

/// Bytes of an IPv4 header without options, and both bits of its ECN field (RFC 3168 section 5).
const IPV4_HEADER: usize = 20;
const ECN: u8 = 0b11;
/// First byte of an IPv4 packet with a header of 20 bytes (RFC 791 section 3.1).
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;
/// UDP's protocol number (RFC 768).
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU8;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use tidewire_sim::link::Fate;
    use tidewire_sim::scenario::Scenario;

    /// A device, and a socket in place of the kernel behind it: one packet per call, as with TUN.
    fn device() -> (UnixDatagram, OwnedFd) {
        let (kernel, device) = UnixDatagram::pair().unwrap();
        device.set_nonblocking(true).unwrap();
        kernel.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        (kernel, device.into())
    }

    /// A UDP packet of ECT(0) whose payload is `number`.
    fn packet(number: u32) -> Vec<u8> {
        let mut packet = vec![0; IPV4_UDP_HEADERS];
        (packet[0], packet[1], packet[9], packet[26]) = (IPV4_WITHOUT_OPTIONS, 2, UDP, 77);
        packet.extend(number.to_be_bytes());
        packet
    }

    #[test]
    fn a_mark_is_set_where_it_is_known_and_the_checksum_stays_right() {
        let sum = |header: &[u8]| {
            let words = header[..IPV4_HEADER].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            (sum & 0xffff) + (sum >> 16)
        };
        for (ecn, marked) in [(0, 0), (1, 3), (2, 3), (3, 3)] {
            for number in 0..300 {
                let mut packet = packet(number);
                packet[1] = 0xb8 | ecn;
                packet[4..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
                let checksum = !(sum(&packet) as u16);
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                mark(&mut packet);
                assert_eq!((packet[1], sum(&packet)), (0xb8 | marked, 0xffff), "{ecn} {number}");
            }
        }
        mark(&mut [0x60; 8]);
    }

    #[test]
    fn packets_cross_as_they_are_or_as_the_link_decides() {
        let text = "seed = 3\n[link]\nrtt = \"40ms\"\n[forward]\nloss = \"gilbert:20%,3\"\n";
        let link = Scenario::parse(text, Path::new("test.toml")).unwrap().link;
        let ((near, near_device), (far, far_device)) = (device(), device());
        let emulator = Emulator::start(near_device, far_device, &link).unwrap();
        let begun = Instant::now();
        for number in 0..200 {
            near.send(&packet(number)).unwrap();
        }
        let mut model = DuplexLink::new(&link).forward;
        let passes = |_: &u32| matches!(model.send(Time::ZERO, 4, ()), Fate::Carried { .. });
        let wanted: Vec<_> = (0..200).filter(passes).map(packet).collect();
        let mut buffer = [0; 100];
        let mut receive = |at: &UnixDatagram| {
            let length = at.recv(&mut buffer).unwrap();
            buffer[..length].to_vec()
        };
        let arrived: Vec<_> = wanted.iter().map(|_| receive(&far)).collect();
        assert!(arrived == wanted && wanted.len() < 180);
        far.send(&packet(9)).unwrap();
        assert_eq!(receive(&near), packet(9));
        // A lower bound only: how late a busy machine is says nothing about the emulator.
        assert!(begun.elapsed() >= Duration::from_millis(40));
        let counts = emulator.stop().unwrap();
        assert_eq!((counts.forward().offered, counts.forward().delivered), (200, wanted.len() as u64));
        assert_eq!((counts.forward().offered_bytes, counts.back().delivered, counts.refused), (200 * 32, 1, 0));
    }

    #[test]
    fn a_changed_byte_gets_past_the_checksum_of_udp_and_not_of_tcp() {
        let corruption = Corruption { offset: 3, mask: NonZeroU8::MIN };
        for (protocol, checksum) in [(UDP, [0, 0]), (6, [7, 7])] {
            let mut packet = [7; 40];
            (packet[0], packet[9]) = (IPV4_WITHOUT_OPTIONS, protocol);
            let before = packet;
            corrupt(&mut packet, corruption);
            assert_eq!(packet[26..28], checksum);
            assert_eq!((packet[31], &packet[..26], &packet[32..]), (6, &before[..26], &before[32..]));
        }
        let mut short = [IPV4_WITHOUT_OPTIONS; 20];
        corrupt(&mut short, corruption);
        assert_eq!(short, [IPV4_WITHOUT_OPTIONS; 20]);
    }
}
