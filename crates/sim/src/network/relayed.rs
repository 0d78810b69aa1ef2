//! A connection of ours over relays that recode: a [`Chain`] whose hops are ways of the network.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::recode::RELAYED_DATAGRAM;

use super::agent::{Agent, Cargo, Sent};
use super::ours::outcome;
use super::report::FlowReport;
use crate::chain::Chain;
use crate::link::{Corruption, Delivery};
use crate::load::{Flow, Load};
use crate::pair::{BEGINNING, End};

/// One connection with its streams, and the relays between its ends.
#[derive(Debug)]
pub(super) struct Relayed {
    chain: Chain,
    load: Load,
    hops: usize,
    limit: Time,
    streams: Vec<Flow>,
    /// When something happens next, as of the last run.
    next: Option<Time>,
}

impl Relayed {
    /// Connects over `hops` hops.
    ///
    /// # Panics
    /// Panics if the settings have no use over relays, which the scenario file refuses.
    pub(super) fn start(hops: usize, ends: &[Config; 2], streams: &[Flow], limit: Duration, seed: u64) -> Self {
        let mut chain = Chain::open(hops, ends, RELAYED_DATAGRAM, seed);
        chain.connect();
        let (load, limit) = (Load::new(streams, seed), BEGINNING + limit);
        Self { chain, load, hops, limit, streams: streams.to_vec(), next: Some(BEGINNING) }
    }
}

impl Agent for Relayed {
    fn next_moment(&self) -> Option<Time> {
        self.next.filter(|&next| !self.is_over() && next <= self.limit)
    }

    fn run(&mut self, now: Time) {
        self.chain.run(&mut self.load, now, |load, _| load.is_over());
        self.next = self.chain.next_moment(&self.load);
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        (0..self.hops).find_map(|number| {
            let link = self.chain.link_mut(number);
            let near = link.forward.poll_departure().map(|sent| (End::Near, sent));
            let (from, sent) = near.or_else(|| link.back.poll_departure().map(|sent| (End::Far, sent)))?;
            let cargo = Cargo::Hop { number, parcel: sent.payload };
            Some(Sent { from, len: sent.len, supports_marks: sent.supports_marks, cargo })
        })
    }

    fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]) {
        let Cargo::Hop { number, parcel: mut payload } = cargo else { return };
        damage.iter().for_each(|damage| damage.apply(payload.bytes_mut()));
        let link = self.chain.link_mut(number);
        let door = if end == End::Far { &mut link.forward } else { &mut link.back };
        door.hand(Delivery { payload, at: now, corruption: None, marked });
        self.next = Some(now);
    }

    fn is_over(&self) -> bool {
        self.load.is_over()
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let ended = if self.load.is_done() { self.chain.now() } else { now };
        // The near end's packets of data, and those of them that brought the relay nothing new or were lost.
        let [near, relay] = self.chain.relay_stats(0);
        let (packets, repeated) = (near.sent, near.sent.saturating_sub(relay.innovative));
        FlowReport { packets, repeated, ..outcome(&self.load, &self.streams, ended) }
    }
}
