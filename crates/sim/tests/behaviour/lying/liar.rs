//! A peer that holds the keys and changes its FEEDBACK before it seals it.
//!
//! The cipher provider sees each packet in plain text, so the rest of the receiver is the real one. Only the
//! acknowledged packet numbers, the delay and the arrival time change. The lane reports stay true, so the
//! data arrives and the sender has no other reason to stop. A changed frame is never longer than the true
//! one: the rest of the packet is padding, and a lie that does not fit is not told.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use tidewire_proto::Time;
use tidewire_proto::crypto::{Aead, AwsLc, HeaderKey, PacketKey, Provider, Refused};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_proto::wire::{
    Feedback, FeedbackRepr, Frame, Frames, Full, LaneRepr, StreamCreditRepr, TAG_LEN, TIME_MODULUS, Writer,
};

/// A unit of the times on the wire (docs/wire.md section 5).
const UNIT: Duration = Duration::from_micros(16);

/// When the sender sent each packet number, as its trace says.
#[derive(Debug, Default)]
pub struct Sent(Mutex<Vec<(u64, Time)>>);

impl Trace for Sent {
    fn record(&self, now: Time, _: ConnectionHandle, event: &TraceEvent) {
        if let TraceEvent::PacketSent { number, .. } = event {
            self.0.lock().unwrap().push((*number, now));
        }
    }
}

impl Sent {
    /// When this number left.
    pub fn left(&self, number: u64) -> Time {
        let sent = self.0.lock().unwrap();
        let at = sent.binary_search_by_key(&number, |&(number, _)| number).expect("sent");
        sent[at].1
    }
}

/// Numbers that fall, as ranges.
pub fn joined(numbers: impl Iterator<Item = u64>) -> Vec<RangeInclusive<u64>> {
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if number + 1 == *last.start() => *last = number..=*last.end(),
            _ => ranges.push(number..=number),
        }
    }
    ranges
}

/// What a FEEDBACK says about the sender's packets: at first the truth.
#[derive(Clone, Debug)]
pub struct Told {
    /// Packet numbers received, newest first.
    pub received: Vec<RangeInclusive<u64>>,
    /// When the newest of them arrived, on the receiver's clock, and how long the receiver kept it.
    pub arrival: Duration,
    pub delay: Duration,
}

/// What a lie depends on.
#[derive(Debug)]
pub struct Known<'a> {
    /// Time since the first FEEDBACK.
    pub passed: Duration,
    /// The FEEDBACK before, as it was told.
    pub before: Option<&'a Told>,
    pub sent: &'a Sent,
}

pub type Lie = fn(&mut Told, &Known<'_>);

/// The ciphers of a peer that lies.
pub struct Liar {
    shared: Arc<Shared>,
}

struct Shared {
    lie: Lie,
    sent: Arc<Sent>,
    /// When the first FEEDBACK left, and what the last one told.
    state: Mutex<(Option<Duration>, Option<Told>)>,
}

impl Liar {
    pub fn provider(lie: Lie, sent: Arc<Sent>) -> Arc<dyn Provider> {
        Arc::new(Self { shared: Arc::new(Shared { lie, sent, state: Mutex::default() }) })
    }
}

impl Shared {
    /// Changes the FEEDBACK of a packet, if it has one.
    fn change(&self, payload: &mut [u8]) {
        let truth = payload.to_vec();
        let frames: Vec<_> = Frames::new(&truth).map(|frame| frame.expect("our own")).collect();
        if !frames.iter().any(|frame| matches!(frame, Frame::Feedback(feedback) if feedback.largest().is_some())) {
            return;
        }
        let mut changed = vec![0; payload.len()];
        let mut w = Writer::new(&mut changed);
        for frame in frames {
            let written = match &frame {
                Frame::Feedback(feedback) => self.write(feedback, &mut w),
                frame => frame.emit(&mut w),
            };
            if written.is_err() {
                return;
            }
        }
        payload.copy_from_slice(&changed);
    }

    fn write(&self, feedback: &Feedback<'_>, w: &mut Writer<'_>) -> Result<(), Full> {
        let arrival = UNIT * feedback.arrival().expect("ours says it");
        let mut told = Told { received: feedback.received().collect(), arrival, delay: feedback.delay() };
        let state = &mut *self.state.lock().unwrap();
        let now = arrival + told.delay;
        let passed = now - *state.0.get_or_insert(now);
        (self.lie)(&mut told, &Known { passed, before: state.1.as_ref(), sent: &self.sent });
        let lanes: Vec<_> = feedback.lanes().collect();
        let runs: Vec<Vec<_>> = lanes.iter().map(|lane| lane.undecoded.collect()).collect();
        let regions: Vec<Vec<_>> = lanes.iter().map(|lane| lane.regions.collect()).collect();
        let lanes = lanes.iter().zip(runs.iter().zip(&regions));
        let lanes: Vec<_> = lanes
            .map(|(lane, (undecoded, regions))| LaneRepr {
                lane: lane.lane,
                edge: lane.edge,
                end: lane.end,
                deficit: lane.deficit,
                limit: lane.limit,
                undecoded,
                regions,
            })
            .collect();
        let credit = feedback.stream_credit().map(|(streams, limits)| (streams, limits.collect::<Vec<_>>()));
        let stream_credit = credit.as_ref().map(|(streams, limits)| StreamCreditRepr { streams: *streams, limits });
        let repr = FeedbackRepr {
            received: &told.received,
            delay: told.delay,
            arrival: Some((told.arrival.as_nanos() / UNIT.as_nanos()) as u32 % TIME_MODULUS),
            ecn: feedback.ecn(),
            stream_credit,
            lanes: &lanes,
            elicits: feedback.elicits(),
        };
        repr.emit(w)?;
        state.1 = Some(told);
        Ok(())
    }
}

impl Provider for Liar {
    fn aes_hardware(&self) -> bool {
        AwsLc.aes_hardware()
    }

    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey> {
        Box::new(LyingKey { key: AwsLc.packet_key(aead, key), shared: Arc::clone(&self.shared) })
    }

    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey> {
        AwsLc.header_key(aead, key)
    }
}

struct LyingKey {
    key: Box<dyn PacketKey>,
    shared: Arc<Shared>,
}

impl PacketKey for LyingKey {
    fn seal(
        &self,
        nonce: &[u8; 12],
        header: &[u8],
        payload: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        self.shared.change(payload);
        self.key.seal(nonce, header, payload, tag)
    }

    fn open(&self, nonce: &[u8; 12], header: &[u8], payload: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Refused> {
        self.key.open(nonce, header, payload, tag)
    }
}
