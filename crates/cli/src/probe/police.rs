//! Recognises a policer: a token bucket that passes what fits and drops the rest, without a queue.
//!
//! [`recognise`] replays the packets of both phases through buckets of many rates, without a limit of their
//! size. Where a policer drops a packet, its bucket is empty to less than a packet. So with the right rate
//! all its drops find the same number of bytes used, which is the size of the bucket, however fast the sender
//! was and whether the bucket was full in between. Random losses, single or in bursts, find any number. A
//! queue has the same law, and shows it in the delay: where `b` bytes of the bucket are used, a packet of a
//! queue waits for `b / R`. docs/probe.md section "Policers" says what was measured.

use std::fmt;

use serde::Serialize;
use tidewire_command::report::rate as rate_in_words;

use super::follow::Followed;

/// Drops that say anything.
const LEAST_DROPS: usize = 96;
/// Bytes used of the bucket at a drop differ by so many packets more or fewer, and by what the bucket gets in
/// this time. One packet is the remainder of the bucket; the rest is the sender's clock and a queue before
/// the policer.
const TOLERANCE: f64 = 1.5;
const CLOCK: f64 = 0.000_3;
/// Length of a full packet in bytes.
const LONGEST: f64 = 1_500.0;
/// The part of the drops of both phases that has to find the same number of bytes used. Chosen between
/// policers (0.63 and more) and losses without one (0.45 and less); docs/probe.md has the cases.
const LEAST_EXPLAINED: f64 = 0.55;
/// Least bucket in bytes. Chosen: five packets. An even load with random losses seems to have a bucket of two
/// to four packets, and a queue of one packet one of three or four.
const LEAST_BUCKET: f64 = 7_500.0;
/// The search for the rate. No span between two drops of a policer passes more than its bucket got, so those
/// of this many seconds and more bound the rate from below, each to three packets. Chosen: a tenth of a
/// second at 10 Mbit/s has 83.
const LEAST_SPAN: f64 = 0.1;
/// A short time, in seconds. Chosen: the drops of one overflow are within less.
const TIME: f64 = 0.05;
/// Drops whose spans are compared, and drops whose bytes are, evenly chosen among all.
const ENDS: usize = 400;
const COMPARED: usize = 2_000;
/// Parts of that bound between which the rate is searched first, and the step: the bound is too low where the
/// bucket was full in every long span. A drop of the medium while it was full makes the bound too high, so
/// lower rates follow.
const NEAR: [f64; 2] = [0.97, 1.15];
const NEAR_STEP: f64 = 1.000_5;
const FAR: [f64; 2] = [0.1, 0.97];
const FAR_STEP: f64 = 1.002;
/// The best of the lower rates are searched again, in these steps. Chosen: in eight seconds an error of half
/// a step is a packet at 12 Mbit/s.
const FINE: usize = 3;
const FINE_STEP: f64 = 1.000_2;
/// The search ends after the rates near the bound if one explains this part of the drops, and of the times
/// with drops. Chosen.
const CLEAR: f64 = 0.8;
/// A rate is as good as the best one if it explains this part of what the best one does. Chosen.
const AS_GOOD: f64 = 0.97;
/// Round trips on each side of one that have to show a queue too.
const AROUND: usize = 2;
/// A part of the delay that a queue of the size of the bucket would have. Above it, there is a queue.
const QUEUED: f64 = 0.5;
/// Error of the rate that is allowed for when drops are assigned to the bucket, as a part. Chosen: twice the
/// largest error that was measured under `share` without other losses.
const RATE_ERROR: f64 = 0.01;

/// A token bucket on the path that drops what exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Policer {
    /// Its rate in bits per second, IP headers included.
    pub rate_bps: f64,
    /// What the full bucket lets pass at once.
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
    /// What it dropped of both phases, beside what is known to be dropped at our own rate: the packets that
    /// were lost while the bucket was as good as empty. The rate is known to a part only, so a drop that
    /// finds somewhat fewer bytes used than the fit allows sets them.
    pub fn dropped(&self, light: &[Followed], full: &[Followed]) -> [Dropped; 2] {
        let (rate, size) = (self.rate_bps / 8.0, self.bucket_bytes as f64);
        let mut bucket = Bucket::new(rate);
        let (mut since, mut dropped) = (0.0, [Dropped::default(); 2]);
        for (phase, packet) in at_the_bottleneck(light, full) {
            bucket.take(&packet);
            let beyond = bucket.used + f64::from(packet.bytes) - size;
            if !packet.lost || beyond < -tolerance(rate) - RATE_ERROR * rate * (packet.at - since) {
                continue;
            }
            if beyond < -tolerance(rate) {
                (bucket.used, since) = (size - f64::from(packet.bytes), packet.at);
            }
            if !packet.at_own_rate {
                dropped[phase].packets += 1;
                dropped[phase].bytes += u64::from(packet.bytes);
            }
        }
        dropped
    }
}

/// The policer that both phases met; `None` if there is none, or if the drops are too few to tell.
pub fn recognise(light: &[Followed], full: &[Followed]) -> Option<Policer> {
    let least = least_rtt(light, full)?;
    let packets: Vec<Followed> = at_the_bottleneck(light, full).into_iter().map(|(_, packet)| packet).collect();
    let fit = fitted(&packets)?;
    if fit.explained < LEAST_EXPLAINED || queued(&packets, &fit, least) > QUEUED {
        return None;
    }
    Some(Policer { rate_bps: 8.0 * fit.rate, bucket_bytes: fit.bucket as u64 })
}

/// The least round trip of both phases, in seconds.
fn least_rtt(light: &[Followed], full: &[Followed]) -> Option<f64> {
    light.iter().chain(full).filter_map(|packet| packet.rtt).min_by(f64::total_cmp)
}

/// The packets of both phases with the number of their phase, in the order and with the times in which they
/// came to the end of a queue.
fn at_the_bottleneck(light: &[Followed], full: &[Followed]) -> Vec<(usize, Followed)> {
    let least = least_rtt(light, full).unwrap_or_default();
    let of = |phase, packets| behind_queue(packets, least).into_iter().map(move |packet| (phase, packet));
    let mut packets: Vec<(usize, Followed)> = of(0, light).chain(of(1, full)).collect();
    packets.sort_by(|a, b| a.1.at.total_cmp(&b.1.at));
    packets
}

/// The packets with the times at which they came to the end of a queue: as much later as all round trips
/// near one, on both sides, were longer than the least one. A single one may be jitter.
fn behind_queue(packets: &[Followed], least: f64) -> Vec<Followed> {
    let mut moved = packets.to_vec();
    let known: Vec<(usize, f64)> =
        (0..packets.len()).filter_map(|index| Some((index, packets[index].rtt? - least))).collect();
    let near = |place: usize| &known[place.saturating_sub(AROUND)..(place + AROUND + 1).min(known.len())];
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

/// The bucket of one rate that explains most drops.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// Bytes per second.
    rate: f64,
    /// Bytes used at the drops that it explains.
    bucket: f64,
    /// The part of the drops that it explains.
    explained: f64,
    /// The part of the short times with drops in which it explains one. Nearly all drops may be those of a
    /// start-up, which leave the rate open.
    times: f64,
}

impl Fit {
    /// The bucket of this rate; `None` if it is as small as one that random losses seem to have.
    fn of(packets: &[Followed], drops: usize, rate: f64) -> Option<Self> {
        let mut bucket = Bucket::new(rate);
        let (mut seen, step) = (0, drops / COMPARED + 1);
        let mut found = Vec::with_capacity(drops / step + 1);
        for packet in packets {
            bucket.take(packet);
            if packet.lost {
                if seen % step == 0 {
                    found.push((packet.at, bucket.used + f64::from(packet.bytes)));
                }
                seen += 1;
            }
        }
        let allowed = tolerance(rate);
        let (most, top) = densest(found.iter().map(|(_, used)| *used).collect(), 2.0 * allowed);
        let is_explained = |used: f64| used <= top && used >= top - 2.0 * allowed;
        let (mut times, mut explained_times, mut last) = (0, 0, [None; 2]);
        for (at, used) in &found {
            let time = (at / TIME) as u64;
            times += u32::from(last[0].replace(time) != Some(time));
            if is_explained(*used) {
                explained_times += u32::from(last[1].replace(time) != Some(time));
            }
        }
        let fit = Self {
            rate,
            bucket: top - allowed,
            explained: most as f64 / found.len() as f64,
            times: f64::from(explained_times) / f64::from(times),
        };
        (fit.bucket >= LEAST_BUCKET).then_some(fit)
    }

    /// What the search compares.
    fn merit(&self) -> f64 {
        self.explained + self.times
    }
}

/// Finds the interval of this width that holds the most values. Returns how many, and the largest of them.
fn densest(mut values: Vec<f64>, width: f64) -> (usize, f64) {
    values.sort_by(f64::total_cmp);
    let (mut from, mut most, mut top) = (0, 0, 0.0);
    for (place, value) in values.iter().enumerate() {
        while value - values[from] > width {
            from += 1;
        }
        if place - from >= most {
            (most, top) = (place - from + 1, *value);
        }
    }
    (most, top)
}

/// The bucket that explains most drops.
fn fitted(packets: &[Followed]) -> Option<Fit> {
    let drops = packets.iter().filter(|packet| packet.lost).count();
    if drops < LEAST_DROPS {
        return None;
    }
    let bound = fastest_span(packets, drops);
    if bound <= 0.0 {
        return None;
    }
    let search = |ends: [f64; 2], step: f64| {
        let rates = std::iter::successors(Some(ends[0]), move |rate| Some(rate * step));
        let fits = rates.take_while(move |rate| *rate <= ends[1]).filter_map(|rate| Fit::of(packets, drops, rate));
        let mut fits: Vec<Fit> = fits.collect();
        fits.sort_by(|a, b| b.merit().total_cmp(&a.merit()));
        fits
    };
    let mut fits = search(NEAR.map(|part| part * bound), NEAR_STEP);
    if fits.first().is_none_or(|fit| fit.explained.min(fit.times) < CLEAR) {
        let rough = search(FAR.map(|part| part * bound), FAR_STEP);
        for fit in rough.iter().take(FINE) {
            fits.extend(search([fit.rate / FAR_STEP, fit.rate * FAR_STEP], FINE_STEP));
        }
    }
    middle(fits).and_then(|rate| Fit::of(packets, drops, rate))
}

/// The middle of the rates around the best one that explain nearly as many drops. Drops of a short time leave
/// the rate open.
fn middle(mut fits: Vec<Fit>) -> Option<f64> {
    fits.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let best = (0..fits.len()).max_by(|a, b| fits[*a].merit().total_cmp(&fits[*b].merit()))?;
    let is_as_good = |fit: &&Fit| fit.merit() >= AS_GOOD * fits[best].merit();
    let last = fits[best..].iter().take_while(is_as_good).last()?;
    let first = fits[..=best].iter().rev().take_while(is_as_good).last()?;
    Some((first.rate + last.rate) / 2.0)
}

/// The most bytes per second that passed between two drops.
fn fastest_span(packets: &[Followed], drops: usize) -> f64 {
    let mut passed = 0.0;
    let mut ends = Vec::with_capacity(drops);
    for packet in packets {
        if packet.lost {
            ends.push((packet.at, passed));
        } else {
            passed += f64::from(packet.bytes);
        }
    }
    let ends: Vec<(f64, f64)> = ends.into_iter().step_by(drops / ENDS + 1).collect();
    let mut fastest = 0.0f64;
    for (place, from) in ends.iter().enumerate() {
        for to in &ends[place + 1..] {
            let time = to.0 - from.0;
            if time >= LEAST_SPAN {
                fastest = fastest.max((to.1 - from.1 - TOLERANCE * LONGEST) / (time + CLOCK));
            }
        }
    }
    fastest
}

/// Allowed difference, in bytes, between what passed and what the bucket got.
fn tolerance(rate: f64) -> f64 {
    TOLERANCE * LONGEST + CLOCK * rate
}

/// A bucket that is full at first, and has no limit.
struct Bucket {
    rate: f64,
    /// Bytes that lack.
    used: f64,
    last: f64,
}

impl Bucket {
    fn new(rate: f64) -> Self {
        Self { rate, used: 0.0, last: f64::INFINITY }
    }

    /// Takes the next packet, if it arrived.
    fn take(&mut self, packet: &Followed) {
        let time = (packet.at - std::mem::replace(&mut self.last, packet.at)).max(0.0);
        self.used = (self.used - self.rate * time).max(0.0);
        if !packet.lost {
            self.used += f64::from(packet.bytes);
        }
    }
}

/// The delay as a part of that of a queue with the size of the bucket: near 1 for a queue, near 0 for a
/// policer.
fn queued(packets: &[Followed], fit: &Fit, least_rtt: f64) -> f64 {
    let mut bucket = Bucket::new(fit.rate);
    let (mut common, mut square) = (0.0, 0.0);
    for packet in packets {
        bucket.take(packet);
        if let Some(rtt) = packet.rtt {
            let wait = bucket.used.min(fit.bucket) / fit.rate;
            common += wait * (rtt - least_rtt);
            square += wait * wait;
        }
    }
    if square > 0.0 { common / square } else { 0.0 }
}

#[cfg(test)]
mod tests;
