//! Runs of Sphinx's figures over a link that marks, in virtual time. The experiments of this folder call it.
//! Invariant: the arguments of a run determine its result.

use std::time::Duration;

use tidewire_figures::ascending;
use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, Loss, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial, together};
use tidewire_sim::video::{Sample, Synthetic, Video, Viewing};
use tidewire_units::{Probability, Rate};

/// A link with a queue that marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub mbit: u64,
    pub rtt: Duration,
    /// Share of the packets lost on the way of the data.
    pub loss: f64,
}

/// Packets that wait longer are marked. Chosen: the target of CoDel (RFC 8289 section 4.3).
const MARK: Duration = Duration::from_millis(5);
/// Least queue. Chosen: four times the time from which on it marks.
const LEAST_QUEUE: Duration = Duration::from_millis(20);
/// Seed of link and data.
const SEED: u64 = 1;
/// Share of the rate at which single blocks are offered. Chosen: all schemes carry it, at 10 % loss too.
pub(super) const OFFERED: f64 = 0.65;
/// The window grows in the first second, whose blocks are left out.
const START: Duration = Duration::from_secs(1);

/// Flows that share one link (section IV-A: five pairs).
pub(super) const PAIRS: usize = 5;
/// The link of the five pairs, without losses.
pub(super) const SHARED: Link = Link { mbit: 100, rtt: Duration::from_millis(10), loss: 0.0 };
/// Time between the starts of two pairs, from the last start until counting begins, and of counting: those of
/// the lab's contests and of this paper's in the lab.
const STAGGER: Duration = Duration::from_millis(500);
pub(super) const SETTLE: Duration = Duration::from_secs(3);
pub(super) const COUNTED: Duration = Duration::from_secs(10);
/// More bytes than the link carries in any of these runs.
const ENDLESS: u64 = 1 << 33;

impl Link {
    /// Bits per second that the link delivers.
    pub(super) fn delivers(&self) -> f64 {
        self.mbit as f64 * 1e6 * (1.0 - self.loss)
    }
}

/// The link as both the simulator and the lab take it.
pub(super) fn duplex(link: Link) -> DuplexConfig {
    let mut duplex = DuplexConfig::default();
    duplex.set_rtt(link.rtt);
    for side in [&mut duplex.forward, &mut duplex.back] {
        // No rate of the figures is 0.
        let rate = Rate::from_bits_per_second(link.mbit * 1_000_000);
        side.capacity = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
        side.queue = Some(Queue::Time(LEAST_QUEUE.max(link.rtt * 2)));
        side.aqm.mark = Some(MARK);
    }
    duplex.forward.loss = Probability::new(link.loss).filter(|_| link.loss > 0.0).map_or(Loss::None, Loss::Iid);
    duplex.set_seed(SEED);
    duplex
}

/// The settings of both ends.
pub(super) fn config(profile: &Profile) -> Config {
    // The profiles of the figures fit together; if one did not, its rows would be those of the default.
    Config::builder().profile(*profile).build().unwrap_or_default()
}

fn trial(profile: &Profile, link: Link, flow: Flow) -> Trial {
    let mut trial = Trial::new(duplex(link), vec![flow], SEED);
    trial.near = config(profile);
    trial.far = trial.near.clone();
    trial
}

/// Goodput of a transfer of `bytes` bytes, in bits per second, start included.
pub(super) fn bulk(profile: &Profile, link: Link, bytes: u64) -> f64 {
    trial(profile, link, Flow::bulk(End::Near, bytes)).run().goodput_bps
}

/// Median and 99th percentile of the time from when a block was offered to when it was read, in milliseconds.
pub(super) fn completion(profile: &Profile, link: Link, blocks: u64, block: u64) -> [Option<f64>; 2] {
    let bytes_per_second = (link.mbit as f64 * 1e6 / 8.0 * OFFERED) as u64;
    let paced = Flow::paced(End::Near, blocks * block, bytes_per_second);
    let trial = trial(profile, link, Flow { record: block, ..paced });
    let mut run = trial.start();
    let end = run.began() + trial.limit;
    run.until(end);
    let settled = run.load.arrivals().iter().filter(|arrival| arrival.made > START);
    let delays = ascending(settled.map(|arrival| arrival.delay().as_secs_f64() * 1e3));
    [0.5, 0.99].map(|quantile| delays.get((delays.len() as f64 * quantile) as usize).copied())
}

/// What a viewer sees of a video that is sent as fast as the path takes it, until the time of its length.
pub(super) fn video(profile: &Profile, link: Link, length: Duration) -> Option<Viewing> {
    let video = content(length)?;
    let mut run = trial(profile, link, Flow::video(End::Near, video)).start();
    let end = run.began() + length;
    run.until(end);
    run.load.viewing(0, end)
}

/// The paper's video: its trace is not public, so one of the same kind is made. The rate is chosen so that
/// the link of 25 Mbit/s carries it and CUBIC at 2 % loss does not.
const VIDEO_BITS_PER_SECOND: u64 = 12_000_000;

/// The video of a length.
pub(super) fn content(length: Duration) -> Option<Video> {
    Synthetic::new(VIDEO_BITS_PER_SECOND, SEED).trace(length).ok().map(Video::best_effort)
}

/// Share of the time from the first start of playback to its end, or to `length`, in which the video played.
pub(super) fn playing(viewing: &Viewing, length: Duration) -> Option<f64> {
    let whole = viewing.ended.unwrap_or(length).min(length).saturating_sub(viewing.first_start?);
    Some(1.0 - viewing.stalled.as_secs_f64() / whole.as_secs_f64())
}

/// Time and buffered seconds of the first sample of each second.
pub(super) fn each_second(mut samples: Vec<Sample>) -> Vec<(f64, f64)> {
    samples.dedup_by_key(|sample| sample.at.as_secs());
    samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.buffered.as_secs_f64())).collect()
}

/// The share of what the link delivers of each of five pairs that start one after the other. Each pair has
/// its own losses; all share one queue. `counted` is the time of counting.
pub(super) fn shares(profile: &Profile, link: Link, counted: Duration) -> Vec<f64> {
    let mut runs = Vec::<Run>::new();
    for pair in 0..PAIRS as u32 {
        let flow = Flow { start: STAGGER * pair, ..Flow::bulk(End::Near, ENDLESS) };
        let mut trial = trial(profile, link, flow);
        trial.seed = SEED + u64::from(pair);
        trial.link.set_seed(trial.seed);
        runs.push(trial.start_beside(runs.first()));
    }
    let Some(began) = runs.first().map(Run::began) else { return Vec::new() };
    let mut read_at = |at| {
        together(&mut runs, at);
        runs.iter().map(|run| run.load.read() as f64).collect::<Vec<_>>()
    };
    let begin = began + STAGGER * (PAIRS as u32 - 1) + SETTLE;
    let before = read_at(begin);
    let bits = link.delivers() * counted.as_secs_f64();
    read_at(begin + counted).iter().zip(before).map(|(after, before)| 8.0 * (after - before) / bits).collect()
}

/// Jain's index of some shares (R. Jain and others, "A quantitative measure of fairness", 1984): 1 if all are
/// equal, one over their number if one flow gets everything. 1 if all are 0.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playing_is_the_time_without_stalls() {
        let seconds = Duration::from_secs;
        let viewing = |stalled, ended| Viewing {
            received: seconds(10),
            played: seconds(8),
            first_start: Some(seconds(2)),
            stalls: 1,
            stalled: seconds(stalled),
            ended,
            samples: Vec::new(),
        };
        assert_eq!(playing(&viewing(2, None), seconds(10)), Some(0.75));
        assert_eq!(playing(&viewing(0, Some(seconds(6))), seconds(10)), Some(1.0));
        assert_eq!(playing(&Viewing { first_start: None, ..viewing(0, None) }, seconds(10)), None);
    }

    #[test]
    fn fairness_is_between_one_flow_that_has_all_and_equal_shares() {
        assert_eq!([&[0.5; 4], &[1.0, 0.0, 0.0, 0.0]].map(|shares| jain(shares)), [1.0, 0.25]);
        // (1 + 3)^2 / (2 (1 + 9)).
        assert_eq!((jain(&[1.0, 3.0]), jain(&[0.0, 0.0])), (0.8, 1.0));
    }
}
