//! Recognises a policer: a token bucket that passes what fits and drops the rest, without a queue.
//!
//! [`recognise`] fits a bucket to the packets of both phases. Where a policer drops a packet, its bucket is
//! empty to less than a packet. So between any two drops exactly as much passes as the bucket got in that
//! time, to a packet, however fast the sender was; if the bucket was full in between, less. Random losses,
//! single or in bursts, have no such law. A queue has the same law, and shows it in the delay: where `b`
//! bytes of the bucket are used, a packet of a queue waits for `b / R`. docs/probe.md section "Policers" says
//! what was measured.

use std::fmt;

use serde::Serialize;

use super::follow::Followed;
use crate::report::rate as rate_in_words;

/// Drops of a phase that say anything.
const LEAST_DROPS: usize = 96;
/// Least and most blocks of drops, and least drops of one. In a block of n random losses the number of
/// packets that arrive varies by about the root of n, and behind a policer by one. So a block has at least
/// the square of twice the packets that [`TOLERANCE`] and [`CLOCK`] allow.
const BLOCKS: [usize; 2] = [8, 16];
const BLOCK: usize = 8;
const MOST_BLOCK: usize = 64;
/// A span from one drop to another fits if it passed so many packets more or fewer than the bucket got, and
/// what the bucket gets in this time. One packet is the remainder of the bucket at both ends; the rest is the
/// sender's clock and a queue before the policer.
const TOLERANCE: f64 = 1.5;
const CLOCK: f64 = 0.000_3;
/// The part of the time of the blocks that fit, less so many times the part of the time of the blocks, or of
/// the spans between neighbouring drops, that passed more than the bucket got, has to be at least this. In
/// the remaining time the bucket was full, and less passed. Chosen between policers (0.32 and more where the
/// sender stays above the rate) and random losses (0.12 and less); docs/probe.md has the cases.
const ABOVE_WEIGHT: f64 = 5.0;
const LEAST_FITTING: f64 = 0.25;
/// Part of the time in which blocks pass at most the first guess of the rate. Chosen: blocks in which the
/// bucket was full are slower.
const FASTEST: f64 = 0.8;
/// Part of the time between drops that passed no more than the rate.
const MOST_BELOW: f64 = 0.99;
/// Rounds in which the blocks that passed less are left out of the rate. Chosen: it settles in four.
const ROUNDS: usize = 8;
/// Round trips on each side of one that have to show a queue too.
const AROUND: usize = 2;
/// A part of the delay that a queue of the size of the bucket would have. Above it, there is a queue.
const QUEUED: f64 = 0.5;

/// The bucket has to explain this part of all drops of both phases, where its rate may be wrong by the second
/// value.
const LEAST_EXPLAINED: f64 = 0.5;
const RATE_ERROR: f64 = 0.02;
/// Least bucket in bytes. Chosen: five packets. An even load with random losses seems to have a bucket of one
/// packet, and a queue of one packet one of three or four.
const LEAST_BUCKET: f64 = 7_500.0;

/// A policer on the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Policer {
    /// Its rate in bits per second, IP headers included.
    pub rate_bps: f64,
    /// The size of its bucket in bytes.
    pub bucket_bytes: u64,
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bucket = (self.bucket_bytes as f64 / 1e3).round();
        write!(f, "policed at {}, bucket about {bucket} kB", rate_in_words(self.rate_bps))
    }
}

/// Packets that a policer dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Their number.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Policer {
    /// What it dropped of both phases, beside what is known to be dropped at our own rate.
    pub fn dropped(&self, light: &[Followed], full: &[Followed]) -> [Dropped; 2] {
        self.explains(light, full).map(|packets| {
            let unknown = packets.into_iter().filter(|packet| !packet.at_own_rate);
            unknown.fold(Dropped::default(), |sum, packet| Dropped {
                packets: sum.packets + 1,
                bytes: sum.bytes + u64::from(packet.bytes),
            })
        })
    }

    /// The packets of both phases that were lost while the bucket was as good as empty. The rate is known to
    /// a part only, so each such packet sets the bucket to empty.
    fn explains<'a>(&self, light: &'a [Followed], full: &'a [Followed]) -> [Vec<&'a Followed>; 2] {
        let mut bucket = Bucket::new(self.rate_bps / 8.0, self.bucket_bytes as f64);
        let mut since = 0.0;
        [light, full].map(|packets| {
            let is_explained = |packet: &&Followed| {
                bucket.take(packet);
                let error = RATE_ERROR * bucket.rate * (packet.at - since);
                let room = f64::from(packet.bytes) + tolerance(bucket.rate, f64::from(packet.bytes)) + error;
                let is_explained = packet.lost && bucket.size - bucket.used < room;
                if is_explained {
                    (bucket.used, since) = (bucket.size, packet.at);
                }
                is_explained
            };
            packets.iter().filter(is_explained).collect()
        })
    }
}

/// The policer that both phases met; `None` if there is none, or if the drops are too few to tell.
pub fn recognise(light: &[Followed], full: &[Followed]) -> Option<Policer> {
    let least = least_rtt(light, full)?;
    // The light load alone, where it exceeds the policer, is the more even one.
    let rate_of = |packets| fitted(&at_the_bottleneck(packets, least, AROUND));
    let (before, packets, rate) = match rate_of(light) {
        Some(rate) => (&[][..], light, rate),
        None => (light, full, rate_of(full)?),
    };
    let [before, packets] = [before, packets].map(|packets| at_the_bottleneck(packets, least, 0));
    let emptied = emptied(&packets, rate)?;
    let bucket = burst(before.iter().chain(&packets[..=emptied]), rate);
    if bucket < LEAST_BUCKET || queued(&packets, rate, bucket, least) > QUEUED {
        return None;
    }
    let policer = Policer { rate_bps: 8.0 * rate, bucket_bytes: bucket as u64 };
    let lost = light.iter().chain(full).filter(|packet| packet.lost).count();
    let explained = policer.explains(light, full).iter().flatten().count();
    (explained as f64 >= LEAST_EXPLAINED * lost as f64).then_some(policer)
}

/// The least round trip of both phases, in seconds.
fn least_rtt(light: &[Followed], full: &[Followed]) -> Option<f64> {
    light.iter().chain(full).filter_map(|packet| packet.rtt).min_by(f64::total_cmp)
}

/// The packets with the times at which they came to the end of a queue: as much later as all round trips,
/// `around` before and after, were longer than the least one. A single one may be jitter.
fn at_the_bottleneck(packets: &[Followed], least: f64, around: usize) -> Vec<Followed> {
    let mut moved = packets.to_vec();
    let known: Vec<(usize, f64)> =
        (0..packets.len()).filter_map(|index| Some((index, packets[index].rtt? - least))).collect();
    let near = |place: usize| &known[place.saturating_sub(around)..(place + around + 1).min(known.len())];
    let shortest = |place| near(place).iter().map(|(_, wait)| *wait).fold(f64::INFINITY, f64::min);
    let known: Vec<(usize, f64)> = (0..known.len()).map(|place| (known[place].0, shortest(place))).collect();
    for ends in known.windows(2) {
        let [(from, first), (to, last)] = [ends[0], ends[1]];
        for (place, packet) in moved[from..to].iter_mut().enumerate() {
            packet.at += first + place as f64 / (to - from) as f64 * (last - first);
        }
    }
    moved
}

/// From one drop to a later one.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Bytes that passed, and the time.
    bytes: f64,
    time: f64,
    /// Length of the longer of the two packets: the bucket held less at both ends.
    longer: f64,
}

impl Span {
    /// Bytes that passed beyond what a bucket of this rate got.
    fn excess(&self, rate: f64) -> f64 {
        self.bytes - rate * self.time
    }

    fn is_above(&self, rate: f64) -> bool {
        self.excess(rate) > tolerance(rate, self.longer)
    }

    fn fits(&self, rate: f64) -> bool {
        self.excess(rate).abs() <= tolerance(rate, self.longer)
    }
}

/// The spans between neighbours of these drops.
fn spans(packets: &[Followed], drops: &[usize]) -> Vec<Span> {
    let passed = passed(packets);
    let span = |ends: &[usize]| {
        let [from, to] = [ends[0], ends[1]];
        let longer = f64::from(packets[from].bytes.max(packets[to].bytes));
        Span { bytes: passed[to] - passed[from], time: packets[to].at - packets[from].at, longer }
    };
    drops.windows(2).map(span).collect()
}

/// Rate of the bucket that explains the drops of a phase.
fn fitted(packets: &[Followed]) -> Option<f64> {
    let drops = drops(packets);
    if drops.len() < LEAST_DROPS {
        return None;
    }
    let [gaps, blocks] = [spans(packets, &drops), spans(packets, &ends_of_blocks(packets, &drops))];
    let rate = rate(&gaps, &blocks)?;
    let above = [&gaps, &blocks].map(|spans| part(spans, |span| span.is_above(rate)));
    let fitting = part(&blocks, |block| block.fits(rate));
    (fitting - ABOVE_WEIGHT * above[0].max(above[1]) >= LEAST_FITTING).then_some(rate)
}

/// A packet at which the bucket was empty for the first time, or soon after.
fn emptied(packets: &[Followed], rate: f64) -> Option<usize> {
    let ends = ends_of_blocks(packets, &drops(packets));
    let first = spans(packets, &ends).iter().position(|block| block.fits(rate))?;
    Some(ends[first + 1])
}

fn drops(packets: &[Followed]) -> Vec<usize> {
    (0..packets.len()).filter(|&index| packets[index].lost).collect()
}

/// Drops at which blocks begin and end; none if there are too few.
fn ends_of_blocks(packets: &[Followed], drops: &[usize]) -> Vec<usize> {
    let [Some(&first), Some(&last)] = [drops.first(), drops.last()] else { return Vec::new() };
    let passed = packets[first..last].iter().filter(|packet| !packet.lost);
    let (bytes, count) = passed.fold((0.0, 1.0), |sum, packet| (sum.0 + f64::from(packet.bytes), sum.1 + 1.0));
    let time = (packets[last].at - packets[first].at).max(CLOCK);
    let allowed = TOLERANCE + CLOCK * (bytes / time) / (bytes / count).max(1.0);
    let least = (4.0 * allowed * allowed) as usize;
    let block = (drops.len() / BLOCKS[1]).clamp(BLOCK, MOST_BLOCK).max(least);
    if drops.len() / block < BLOCKS[0] { Vec::new() } else { drops.iter().copied().step_by(block).collect() }
}

/// Bytes that arrived of the packets before each.
fn passed(packets: &[Followed]) -> Vec<f64> {
    let mut sum = 0.0;
    let before = |packet: &Followed| {
        let before = sum;
        sum += if packet.lost { 0.0 } else { f64::from(packet.bytes) };
        before
    };
    packets.iter().map(before).collect()
}

/// Bytes by which what passes in a span may differ from what the bucket got.
fn tolerance(rate: f64, longer: f64) -> f64 {
    TOLERANCE * longer + CLOCK * rate
}

/// The part of the time of all spans that those have for which `holds` is true.
fn part(spans: &[Span], holds: impl Fn(&Span) -> bool) -> f64 {
    let all: f64 = spans.iter().map(|span| span.time).sum();
    spans.iter().filter(|span| holds(span)).map(|span| span.time).sum::<f64>() / all
}

/// Bytes per second of the bucket: what passed in the blocks in which it was never full.
fn rate(gaps: &[Span], blocks: &[Span]) -> Option<f64> {
    // No span passes more than the bucket got, so each gives a lower bound. Those of long spans are near.
    let least = |span: &Span| (span.bytes - TOLERANCE * span.longer) / (span.time + CLOCK);
    let guesses = [quantile(gaps, MOST_BELOW, least), quantile(blocks, FASTEST, |block| block.bytes / block.time)];
    let mut rate = guesses.into_iter().flatten().fold(0.0, f64::max);
    for _ in 0..ROUNDS {
        let near = blocks.iter().filter(|block| {
            let (excess, allowed) = (block.excess(rate), tolerance(rate, block.longer));
            excess > -allowed && excess < (2.0 * allowed).max(0.1 * block.bytes)
        });
        let (bytes, time) = near.fold((0.0, 0.0), |sum, block| (sum.0 + block.bytes, sum.1 + block.time));
        if time > 0.0 {
            rate = bytes / time;
        }
    }
    (rate > 0.0).then_some(rate)
}

/// The value that spans do not exceed in this part of their time.
fn quantile(spans: &[Span], part: f64, value: impl Fn(&Span) -> f64) -> Option<f64> {
    let mut sorted: Vec<(f64, f64)> =
        spans.iter().filter(|span| span.time > 0.0).map(|span| (value(span), span.time)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = part * sorted.iter().map(|(_, time)| time).sum::<f64>();
    let mut before = 0.0;
    let found = sorted.iter().find(|(_, time)| {
        before += time;
        before >= most
    });
    found.map(|(value, _)| *value)
}

/// A bucket that is full at first.
struct Bucket {
    rate: f64,
    size: f64,
    /// Bytes that lack.
    used: f64,
    last: Option<f64>,
}

impl Bucket {
    fn new(rate: f64, size: f64) -> Self {
        Self { rate, size, used: 0.0, last: None }
    }

    /// Takes the next packet. What arrived is taken from the bucket, whether it holds as much or not.
    fn take(&mut self, packet: &Followed) {
        let last = self.last.replace(packet.at).unwrap_or(packet.at);
        self.used = (self.used - self.rate * (packet.at - last)).max(0.0);
        if !packet.lost {
            self.used = (self.used + f64::from(packet.bytes)).min(self.size);
        }
    }
}

/// The most that passed beyond `rate` between any two moments.
fn burst<'a>(packets: impl Iterator<Item = &'a Followed>, rate: f64) -> f64 {
    let mut bucket = Bucket::new(rate, f64::INFINITY);
    packets.fold(0.0, |most: f64, packet| {
        bucket.take(packet);
        most.max(bucket.used)
    })
}

/// The delay as a part of that of a queue with the size of the bucket: near 1 for a queue, near 0 for a
/// policer.
fn queued(packets: &[Followed], rate: f64, size: f64, least_rtt: f64) -> f64 {
    let mut bucket = Bucket::new(rate, size);
    let (mut common, mut square) = (0.0, 0.0);
    for packet in packets {
        bucket.take(packet);
        if let Some(rtt) = packet.rtt {
            let wait = bucket.used / rate;
            common += wait * (rtt - least_rtt);
            square += wait * wait;
        }
    }
    if square > 0.0 { common / square } else { 0.0 }
}

#[cfg(test)]
mod tests;
