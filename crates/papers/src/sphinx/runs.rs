//! Runs of Sphinx's figures over a link that marks, in virtual time. The experiments of this folder call it.
//! Invariant: the arguments of a run determine its result.

use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, Loss, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::video::{Synthetic, Video};
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
const OFFERED: f64 = 0.65;
/// The window grows in the first second, whose blocks are left out.
const START: Duration = Duration::from_secs(1);

fn trial(profile: &Profile, link: Link, flow: Flow) -> Trial {
    let mut duplex = DuplexConfig::default();
    duplex.set_rtt(link.rtt);
    for side in [&mut duplex.forward, &mut duplex.back] {
        // No rate of the figures is 0.
        let rate = Rate::from_bits_per_second(link.mbit * 1_000_000);
        side.capacity = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
        side.queue = Some(Queue::Time(LEAST_QUEUE.max(link.rtt * 2)));
        side.mark = Some(MARK);
    }
    duplex.forward.loss = Probability::new(link.loss).filter(|_| link.loss > 0.0).map_or(Loss::None, Loss::Iid);
    duplex.set_seed(SEED);
    let mut trial = Trial::new(duplex, vec![flow], SEED);
    let config = Config::builder().profile(*profile).build();
    // The profiles of the figures fit together; if one did not, its rows would be those of the default.
    trial.near = config.unwrap_or_default();
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
    let mut delays: Vec<f64> = settled.map(|arrival| arrival.delay().as_secs_f64() * 1e3).collect();
    delays.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|quantile| delays.get((delays.len() as f64 * quantile) as usize).copied())
}

/// Seconds since the start and seconds of buffered video, once a second, for a video that is sent as fast as
/// the path takes it.
pub(super) fn video(profile: &Profile, link: Link, mbit: u64, content: Duration) -> Vec<(f64, f64)> {
    let Ok(trace) = Synthetic::new(mbit * 1_000_000, SEED).trace(content) else { return Vec::new() };
    let trial = trial(profile, link, Flow::video(End::Near, Video::best_effort(trace)));
    let mut run = trial.start();
    let end = run.began() + content;
    run.until(end);
    let Some(watched) = run.load.watched(0, end) else { return Vec::new() };
    let mut samples = watched.samples;
    samples.dedup_by_key(|sample| sample.at.as_secs());
    samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.buffered.as_secs_f64())).collect()
}
