//! A client that asks with POLICY for whatever the sender grants (docs/wire.md section 5): each policy with
//! its least and greatest parameters, under each code, with each answer, also those that no user would take.
//!
//! The sender keeps its rules, so the transfer arrives whole and ends. It may take long: some of these codes
//! seldom decode, and some answers wait for a silence.

use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Elimination, Layout, Profile, STREAM};
use tidewire_proto::redundancy::{Proactive, Redundancy};
use tidewire_proto::wire::parse_code;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, LinkConfig, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_units::Rate;

use super::case::{Draw, GIVE_UP, Seed, loss_model};

/// What a client can ask for: layout, code and redundancy.
#[derive(Clone, Debug)]
pub struct Asked {
    profile: Profile,
    text: String,
}

/// A transfer to a client that asks for a policy.
#[derive(Debug)]
pub struct Request {
    pub trial: Trial,
    /// The text of POLICY.
    pub text: String,
    /// Loss of the direction with the data.
    pub loss: f64,
}

impl Request {
    /// The requests of the seeds from 0 on ask for each text in turn.
    pub fn new(seed: Seed) -> Self {
        let draw = &mut Draw(SplitMix64::new(seed.state()));
        let texts = texts();
        let Asked { profile, text } = texts[(seed.1 % texts.len() as u64) as usize].clone();
        let rate = draw.log(0.5e6, 200e6);
        let rtt = Duration::from_secs_f64(draw.log(0.001, 0.3));
        let mut shared = LinkConfig::default();
        shared.capacity = Capacity::Fixed(Rate::from_bits_per_second(rate as u64).expect("half a megabit at least"));
        let queue = rate / 8.0 * rtt.as_secs_f64() * draw.real(0.5, 2.0) + 30_000.0;
        shared.queue = Some(Queue::Bytes(queue as u64));
        let mut link = DuplexConfig::symmetric(shared);
        let loss = if draw.chance(0.7) { draw.real(0.0, 0.3) } else { 0.0 };
        let other_loss = if draw.chance(0.3) { draw.real(0.0, 0.3) } else { 0.0 };
        link.back.loss = loss_model(draw, loss);
        link.forward.loss = loss_model(draw, other_loss);
        link.set_rtt(rtt);
        link.set_seed(seed.state());

        let mut flow = Flow::bulk(End::Far, draw.log(1_000.0, 2e6) as u64);
        if draw.chance(0.3) {
            flow.record = 1 + draw.below(2_000);
            flow.rate = Some((flow.bytes as f64 / draw.real(0.5, 10.0)) as u64 + 1);
        }
        let mut flows = vec![flow];
        if draw.chance(0.3) {
            flows.push(Flow::bulk(End::Near, draw.log(1.0, 1e5) as u64));
        }
        let mut trial = Trial::new(link, flows, seed.state());
        let elimination = if draw.chance(0.3) { Elimination::Never } else { profile.elimination };
        let least = symbols(profile.redundancy.proactive);
        let span = (draw.log(f64::from(least), 1_024.0) as u16).max(least);
        let near = Config::builder().profile(Profile { elimination, ..profile }).asks_peer(true).max_span(span);
        let far = if draw.chance(0.3) { Config::builder().workers(1) } else { Config::builder() };
        [trial.near, trial.far] =
            [near, far].map(|end| end.idle_timeout(GIVE_UP).handshake_timeout(GIVE_UP).build().expect("in range"));
        trial.limit = LIMIT;
        Self { trial, text, loss }
    }
}

/// Symbols of a block. Both ends must allow spans of as many.
fn symbols(proactive: Proactive) -> u16 {
    match proactive {
        Proactive::Block { k, .. } => k,
        Proactive::Sphinx(blocks) => blocks.symbols,
        Proactive::Rcdp(blocks) => blocks.symbols,
        Proactive::Pipeline(blocks) => blocks.symbols,
        Proactive::Bucket(blocks) => blocks.cap,
        _ => 1,
    }
}

/// Every pair of a layout and a code, with every redundancy that goes with it.
pub fn texts() -> Vec<Asked> {
    let mut all = Vec::new();
    for code in CODES {
        for (layout, policies, answers) in [(Layout::Sliding, SLIDING, ANSWERS), (Layout::Generations, BLOCKS, ANSWERS)]
        {
            let pairs =
                policies.iter().flat_map(|policy| answers.iter().map(move |answer| format!("{policy}{answer}")));
            for redundancy in pairs {
                let name = if layout == Layout::Sliding { "sliding" } else { "generations" };
                let text = format!("{name} {code} {redundancy}");
                let code = parse_code(code).expect("a code");
                let chosen: Redundancy = redundancy.parse().expect("a redundancy");
                let profile = Profile { layout, code, redundancy: chosen, ..STREAM };
                // The usual answer has two texts.
                if profile.check().is_ok() && chosen.to_string() == redundancy {
                    all.push(Asked { profile, text });
                }
            }
        }
    }
    all
}

/// Every code of the wire, those with parameters also with the least and the greatest.
const CODES: [&str; 11] = [
    "rlc",
    "cauchy",
    "rlc16",
    "lt",
    "lt:0.001,0.001",
    "lt:1,1",
    "semi-random-lt",
    "semi-random-lt:1",
    "semi-random-lt:1024",
    "raptorq",
    "rs-fft",
];

/// Policies of a sliding lane, within an overhead of 0.5.
const SLIDING: &[&str] = &[
    "none",
    "every:3",
    "every:1000000000",
    "adaptive",
    "pipeline:1,1",
    "pipeline:1,1.5",
    "pipeline:64,1",
    "pipeline:64,1.5",
    "pipeline:1,min",
    "pipeline:64,min",
    "pipeline:1,combo",
    "pipeline:64,combo",
    "pipeline:1,adaptive",
    "pipeline:64,adaptive",
    "pipeline:1,1,systematic",
    "pipeline:1,1.5,systematic",
    "pipeline:64,1.5,systematic",
    "pipeline:64,combo,systematic",
];

/// Policies of a lane in generations, within an overhead of 0.5 and spans of 256. A Cauchy code takes 255
/// symbols.
const BLOCKS: &[&str] = &[
    "none",
    "block:1,0",
    "block:2,0",
    "block:2,1",
    "block:3,1",
    "block:170,85",
    "block:255,0",
    "block:256,0",
    "block:256,128",
    "sphinx:1",
    "sphinx:2",
    "sphinx:254",
    "sphinx:256",
    "sphinx:1,0.001",
    "sphinx:1,0.99999",
    "sphinx:1,0.99999,floor",
    "sphinx:254,0.001",
    "sphinx:256,0.001",
    "sphinx:256,0.99999",
    "sphinx:256,0.99999,floor",
    "rcdp:1",
    "rcdp:2",
    "rcdp:254",
    "rcdp:256",
    "bucket:1,1",
    "bucket:1,1.5",
    "bucket:64,1",
    "bucket:64,1.5",
];

/// Answers, after the usual one.
const ANSWERS: &[&str] =
    &["", ",open", ",resend", ",deficit", ",planned", ",icm", ",icm:0/0", ",icm:255/65535", ",block-sack"];

/// Longer than the slowest of them.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);
