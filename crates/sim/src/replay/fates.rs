//! The fate of each packet of a replay, on its recorded path.
//!
//! The recorded path is known at the moments at which packets were sent. A packet that was sent in the
//! recording too meets the fate that it met there: the first transmission of a source symbol, its n-th
//! retransmission, and a repair that ends at the same symbol. So a replay with the recorded choices loses
//! the same packets, also where its timers or the machine of the recording were some milliseconds off. A
//! packet without a counterpart is lost as [`Process`] says, between the recorded packets around it and the
//! packets that were added before. Where a plan moved a repair by some symbols, its draw is coupled to the
//! repair nearby that was recorded ([`Fates::draw`]): both have the same fate, unless one of them lies in a
//! burst and the other beside it.
//!
//! Invariant: a counterpart was sent at most [`NEAR`] earlier or later. A choice that delays the flow by more
//! than that meets what the path did at that time.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidewire_proto::trace::PacketContent;

use super::process::Process;
use super::{NEAR, Sent};
use crate::link::random::{Purpose, Stream};

/// A recorded packet: when it was sent, what it carried, and whether it was lost, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub at: Duration,
    pub content: PacketContent,
    pub lost: Option<bool>,
}

/// A repair has a counterpart if one was recorded that ends within this many symbols. Chosen: the distance of
/// repairs at an overhead of 6 %.
const MOVED: u64 = 16;

/// Lane and number of a source symbol.
type Symbol = (u32, u64);

/// Why a packet is sent that is not the first transmission of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Again,
    Proactive,
    Answer,
}

/// Fates of the packets of the sender, for one replay.
#[derive(Debug)]
pub(super) struct Fates<'a> {
    packets: &'a [Packet],
    /// All known fates, in the order of their times.
    known: &'a [Sent],
    process: Process,
    /// First transmissions by their places among `packets`, and the next of them.
    firsts: Vec<(usize, Symbol)>,
    next: usize,
    /// Packets of other roles, by the symbol that they carry or end at.
    others: BTreeMap<(Role, Symbol), VecDeque<usize>>,
    /// The recorded counterpart of each symbol that was sent.
    counterparts: BTreeMap<Symbol, Symbol>,
    /// How far the recording was ahead of the replay at the last first transmission, or behind it.
    ahead: Ahead,
    /// The newest packet without a counterpart, by the clock of the recording.
    added: Option<Sent>,
    draws: Stream,
    drawn: u64,
}

/// A signed time.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    ahead: Duration,
    behind: Duration,
}

impl<'a> Fates<'a> {
    pub fn new(packets: &'a [Packet], known: &'a [Sent], seed: u64) -> Self {
        let (mut firsts, mut others) = (Vec::new(), BTreeMap::<_, VecDeque<_>>::new());
        let mut ends = BTreeMap::<u32, u64>::new();
        for (place, packet) in packets.iter().enumerate() {
            match role(packet.content) {
                Some((None, symbol)) if is_new(&mut ends, symbol) => firsts.push((place, symbol)),
                Some((Some(role), symbol)) => others.entry((role, symbol)).or_default().push_back(place),
                _ => {}
            }
        }
        Self {
            packets,
            known,
            process: Process::of(known),
            firsts,
            next: 0,
            others,
            counterparts: BTreeMap::new(),
            ahead: Ahead::default(),
            added: None,
            draws: Stream::new(seed, Purpose::Loss),
            drawn: 0,
        }
    }

    /// Whether a packet is lost that is sent this long after the connection was made.
    pub fn take(&mut self, since: Duration, content: PacketContent) -> bool {
        let (same, moved) = match role(content) {
            Some((None, symbol)) if !self.counterparts.contains_key(&symbol) => (self.first(since, symbol), None),
            Some((Some(role), symbol)) => match self.other(since, role, symbol) {
                Some((place, true)) => (Some(place), None),
                moved => (None, moved.map(|moved| moved.0)),
            },
            _ => (None, None),
        };
        same.and_then(|place| self.packets[place].lost).unwrap_or_else(|| self.add(since, moved))
    }

    /// The counterpart of the first transmission of a symbol: the next one of the recording.
    fn first(&mut self, since: Duration, symbol: Symbol) -> Option<usize> {
        let at = |&(place, _): &(usize, Symbol)| self.packets[place].at;
        let is_near = self.firsts.get(self.next).is_some_and(|first| at(first).abs_diff(since) <= NEAR);
        if !is_near {
            self.next = self.firsts.partition_point(|first| at(first) < since);
        }
        let &(place, other) = self.firsts.get(self.next).filter(|first| at(first).abs_diff(since) <= NEAR)?;
        let at = self.packets[place].at;
        self.next += 1;
        self.ahead = Ahead { ahead: at.saturating_sub(since), behind: since.saturating_sub(at) };
        self.counterparts.insert(symbol, other);
        Some(place)
    }

    /// The counterpart of a packet with this role, and whether it is for the same symbol.
    fn other(&mut self, since: Duration, role: Role, symbol: Symbol) -> Option<(usize, bool)> {
        let (lane, id) = *self.counterparts.get(&symbol)?;
        let far = if role == Role::Again { 0 } else { MOVED };
        let around = (role, (lane, id.saturating_sub(far)))..=(role, (lane, id.saturating_add(far)));
        let is_near = |places: &VecDeque<usize>| {
            places.front().is_some_and(|&place| self.packets[place].at.abs_diff(since) <= NEAR)
        };
        let near = self.others.range(around).filter(|(_, places)| is_near(places));
        let key = *near.min_by_key(|((_, (_, other)), _)| other.abs_diff(id))?.0;
        let places = self.others.get_mut(&key)?;
        let place = places.pop_front()?;
        if places.is_empty() {
            self.others.remove(&key);
        }
        Some((place, key.1.1 == id))
    }

    /// The fate of a packet that was not recorded, but perhaps another instead of it.
    fn add(&mut self, since: Duration, instead: Option<usize>) -> bool {
        let at = (since + self.ahead.ahead).saturating_sub(self.ahead.behind);
        let after = self.known.partition_point(|sent| sent.at <= at);
        let before = after.checked_sub(1).and_then(|before| self.known.get(before)).copied();
        // Of two packets before, the later one says more.
        let before = [before, self.added].into_iter().flatten().filter(|sent| sent.at <= at).max_by_key(|sent| sent.at);
        let to = |sent: Sent| (sent.at.abs_diff(at), sent.lost);
        let chance = self.process.chance(before.map(to), self.known.get(after).copied().map(to));
        let lost = self.draw(instead) < chance;
        self.added = Some(Sent { at, lost });
        lost
    }

    /// A number from 0 to 1, below which the chance of a loss must not be. It is uniform. With a recorded
    /// packet it is one of those that would have given that packet its fate.
    fn draw(&mut self, like: Option<usize>) -> f64 {
        let draw = self.draws.unit(self.drawn);
        self.drawn += 1;
        let Some(Packet { at, lost: Some(lost), .. }) = like.map(|place| self.packets[place]) else { return draw };
        let to = |sent: &Sent| (sent.at.abs_diff(at), sent.lost);
        let before = self.known.partition_point(|sent| sent.at < at).checked_sub(1);
        let after = self.known.partition_point(|sent| sent.at <= at);
        let before = before.and_then(|before| self.known.get(before));
        let chance = self.process.chance(before.map(to), self.known.get(after).map(to));
        if lost { draw * chance } else { chance + draw * (1.0 - chance) }
    }
}

/// Which symbol a packet carries or ends at, and its role if that is not the first transmission.
fn role(content: PacketContent) -> Option<(Option<Role>, Symbol)> {
    match content {
        PacketContent::Source { lane, id, again } => Some((again.then_some(Role::Again), (lane.0, id.0))),
        PacketContent::Repair { lane, first, count, on_feedback } => {
            let role = if on_feedback { Role::Answer } else { Role::Proactive };
            Some((Some(role), (lane.0, first.0.saturating_add(u64::from(count)).saturating_sub(1))))
        }
        _ => None,
    }
}

/// Whether no packet carried the symbol or a later one of its lane before. A symbol can be sent in parts.
fn is_new(ends: &mut BTreeMap<u32, u64>, (lane, id): Symbol) -> bool {
    let end = ends.entry(lane).or_default();
    let is_new = id >= *end;
    *end = (*end).max(id.saturating_add(1));
    is_new
}

#[cfg(test)]
mod tests {
    use tidewire_codec::SourceId;
    use tidewire_proto::connection::LaneId;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn source(id: u64, again: bool) -> PacketContent {
        PacketContent::Source { lane: LaneId(0), id: SourceId(id), again }
    }

    fn repair(end: u64) -> PacketContent {
        let first = SourceId(end - 8);
        PacketContent::Repair { lane: LaneId(0), first, count: 8, on_feedback: false }
    }

    /// Ten symbols a ms apart from 100; 3 and its first retransmission are lost, and so is the repair.
    fn recorded() -> (Vec<Packet>, Vec<Sent>) {
        let mut packets: Vec<_> = (0..10).map(|n| (ms(n), source(100 + n, false), n == 3)).collect();
        packets.extend([
            (ms(9), repair(110), true),
            (ms(50), source(103, true), true),
            (ms(99), source(103, true), false),
        ]);
        let packets: Vec<_> =
            packets.into_iter().map(|(at, content, lost)| Packet { at, content, lost: Some(lost) }).collect();
        let known = packets.iter().map(|packet| Sent { at: packet.at, lost: packet.lost == Some(true) }).collect();
        (packets, known)
    }

    #[test]
    fn packets_that_were_recorded_meet_their_own_fates() {
        let (packets, known) = recorded();
        let mut fates = Fates::new(&packets, &known, 1);
        // Other numbers, and 20 ms later.
        let lost = (0..10).filter(|&n| fates.take(ms(20 + n), source(n, false))).collect::<Vec<_>>();
        assert_eq!(lost, [3]);
        assert!(fates.take(ms(29), repair(10)));
        assert!(fates.take(ms(70), source(3, true)) && !fates.take(ms(130), source(3, true)));
        // Symbol 103 was sent three times, so the next time has no counterpart.
        assert!(fates.added.is_none());
        fates.take(ms(160), source(3, true));
        assert!(fates.added.is_some_and(|added| added.at == ms(140)));
    }

    /// Records a symbol each ms and a repair after eight, and replays it with repairs two symbols later.
    /// Returns for each of these repairs its number and whether it was lost.
    fn moved(symbol_lost: impl Fn(u64) -> bool, repair_lost: impl Fn(u64) -> bool) -> Vec<(u64, bool)> {
        let mut packets = Vec::new();
        for n in 0..4_000 {
            packets.push(Packet { at: ms(n), content: source(n, false), lost: Some(symbol_lost(n)) });
            if n % 8 == 7 {
                packets.push(Packet { at: ms(n), content: repair(n + 1), lost: Some(repair_lost(n / 8)) });
            }
        }
        let known: Vec<_> = packets.iter().map(|p| Sent { at: p.at, lost: p.lost == Some(true) }).collect();
        let mut fates = Fates::new(&packets, &known, 1);
        let mut lost = Vec::new();
        for n in 0..4_000 {
            fates.take(ms(n), source(n, false));
            if n > 8 && n % 8 == 1 {
                lost.push((n / 8 - 1, fates.take(ms(n), repair(n + 1))));
            }
        }
        lost
    }

    #[test]
    fn a_repair_that_moved_keeps_its_fate_unless_it_moved_into_a_burst() {
        // Single losses: every tenth symbol and every third repair.
        let single = moved(|n| n % 10 == 3, |n| n % 3 == 0);
        assert!(single.iter().all(|(n, lost)| *lost == (n % 3 == 0)), "{single:?}");
        // Bursts of four symbols between the recorded repairs, to where the repairs move.
        let bursts = moved(|n| n % 80 < 4, |_| false);
        let lost = |wanted: bool| bursts.iter().filter(|(n, lost)| *lost && (n % 10 == 9) == wanted).count();
        assert!(lost(true) > 35 && lost(false) < 5, "{} of 49 in bursts, {} beside them", lost(true), lost(false));
    }

    #[test]
    fn a_flow_that_falls_behind_meets_the_path_of_its_time() {
        let (packets, known) = recorded();
        let mut fates = Fates::new(&packets, &known, 1);
        assert!(!fates.take(ms(200), source(0, false)));
        assert_eq!(fates.ahead.behind, Duration::ZERO);
        // An outage keeps its place, whatever was sent before.
        let outage: Vec<_> = (0..400).map(|n| Sent { at: ms(n), lost: (100..200).contains(&n) }).collect();
        let mut fates = Fates::new(&[], &outage, 1);
        let mut lost = |at: u64| (0..20).filter(|n| fates.take(ms(at + n), PacketContent::Control)).count();
        assert_eq!([50, 140, 250].map(&mut lost), [0, 20, 0]);
        assert!(!Fates::new(&[], &[], 1).take(Duration::ZERO, PacketContent::Control));
    }
}
