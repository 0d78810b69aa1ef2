//! After an endpoint was served, no timer lies in the past, whatever an authenticated peer sends.
//! [`Host::turn`] asserts it.

use std::time::Duration;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::config::Config;
use tidewire_proto::connection::{LaneConfig, LaneId, StreamId};
use tidewire_proto::wire::{
    ConnectionId, EcnCounts, FeedbackRepr, Frame, LaneRepr, Layout, SYMBOL_HEADER_LEN, StreamCreditRepr, SymbolHeader,
};

use super::host::{Host, Random};
use super::peer::Peer;

/// A number of any size: small ones, and those at which a varint becomes longer.
fn any(random: &mut Random) -> u64 {
    let bits = random.below(62);
    (random.below(1 << 30) as u64 | (random.below(1 << 30) as u64) << 31) & ((1 << bits) - 1)
}

fn feedback(host: &mut Host, peer: &mut Peer, heard: &[u64], random: &mut Random) {
    let mut received = Vec::new();
    let mut below = heard.last().map_or(0, |newest| newest + 1) + u64::from(random.below(1_000) == 0);
    for _ in 0..random.below(4) {
        let Some(end) = below.checked_sub(1 + random.below(3) as u64) else { break };
        let start = end.saturating_sub(random.below(20) as u64);
        received.push(start..=end);
        below = start.saturating_sub(1);
    }
    let edge = if random.below(100) == 0 { any(random) } else { 0 };
    let end = edge + if random.below(10) == 0 { random.below(3) as u64 } else { 0 };
    let undecoded = [SourceId(edge)..SourceId(end)];
    let length = 1 + random.below(64) as u64;
    let region = [(SourceId(end)..SourceId(end + length), random.below(65).min(length as usize) as u64)];
    let lane = LaneRepr {
        lane: u32::from(random.below(30) == 0),
        edge: SourceId(edge),
        end: SourceId(end),
        deficit: random.below(41).min((end - edge) as usize) as u64,
        limit: SourceId(edge + random.below(100_000) as u64),
        undecoded: if edge < end { &undecoded } else { &[] },
        regions: if random.below(100) == 0 { &region } else { &[] },
    };
    let limits = [(random.below(10) as u64, any(random))];
    let ecn = EcnCounts { ect0: any(random), ect1: any(random), ce: any(random) };
    let said = FeedbackRepr {
        received: &received,
        delay: Duration::from_micros(any(random) & 0xffff_ffff),
        arrival: (random.below(2) == 0).then_some(any(random) as u32),
        ecn: (random.below(4) == 0).then_some(ecn),
        stream_credit: (random.below(4) == 0).then_some(StreamCreditRepr { streams: any(random), limits: &limits }),
        lanes: if random.below(2) == 0 { &[lane] } else { &[] },
        elicits: random.below(2) == 0,
    };
    host.hear(peer, |w| said.emit(w).unwrap_or_else(|_| Frame::Ping.emit(w).expect("room")));
}

fn frame(host: &mut Host, peer: &mut Peer, random: &mut Random) {
    // Padding, and now and then an invalid symbol.
    let mut symbol = vec![0; SYMBOL_HEADER_LEN + 1 + random.below(64)];
    let length = symbol.len() as u16 + u16::from(random.below(100) == 0);
    SymbolHeader { length, time: random.below(1 << 24) as u32 }.emit(&mut symbol).expect("room");
    let (lane, id) = (random.below(16) as u32, SourceId(random.below(300) as u64));
    let base = SourceId(id.0.min(random.below(300) as u64));
    let frame = match random.below(8) {
        0 | 1 => {
            Frame::Source { lane, layout: Layout::Sliding, id, base, again: random.below(2) == 0, symbol: &symbol }
        }
        2 => {
            let id = RepairId { first: id, count: 1 + random.below(256) as u16, key: random.below(8) as u16 };
            Frame::Repair {
                lane,
                layout: Layout::Sliding,
                code: Code::Rlc,
                id,
                base,
                on_feedback: false,
                symbol: &symbol,
            }
        }
        3 => Frame::Base { lane, base: SourceId(random.below(300) as u64) },
        4 => Frame::PathChallenge([random.below(256) as u8; 8]),
        5 => Frame::PathResponse([random.below(256) as u8; 8]),
        6 => {
            let sequence = 1 + random.below(6) as u64;
            let retire = u64::from(random.below(4) == 0);
            Frame::NewCid { sequence, retire, path: 0, id: ConnectionId([sequence as u8; 8]) }
        }
        _ => Frame::Ping,
    };
    host.hear(peer, |w| frame.emit(w).unwrap_or_else(|_| Frame::Ping.emit(w).expect("room")));
}

fn application(host: &mut Host, random: &mut Random) {
    let (now, stream, mut buffer) = (host.now, StreamId(random.below(10) as u64), [0; 2_048]);
    let len = random.below(buffer.len() + 1);
    if !host.closed.is_empty() {
        return;
    }
    host.with(|us| match random.below(9) {
        0 => drop(us.open_stream()),
        1 | 2 => drop(us.write(stream, &buffer[..len])),
        3 => drop(us.read(now, stream, &mut buffer[..len])),
        4 => drop(us.finish(stream)),
        5 => drop(us.reset(stream, 1)),
        6 => drop(us.open_lane(&LaneConfig::default())),
        _ => drop(us.send_message(now, LaneId(1 + random.below(3) as u32), &buffer[..len], Duration::from_millis(100))),
    });
}

#[test]
fn no_timer_lies_in_the_past_whatever_a_peer_says() {
    let seeds = if tidewire_testing::few_seeds() { 300 } else { 6_000 };
    let mut closed = 0;
    for seed in 1..=seeds {
        let (mut random, mut config) = (Random(seed), Config::default());
        config = config
            .to_builder()
            .ring_memory(1 << 20)
            .keep_alive((seed % 3 == 0).then(|| Duration::from_millis(1_000 + seed % 997)))
            .build()
            .expect("in range");
        let mut host = Host::new(config, 2);
        let (mut peer, mut heard) = (host.meet(1), Vec::new());
        let home = peer.from;
        for _ in 0..random.below(120) {
            match random.below(10) {
                0 | 1 => frame(&mut host, &mut peer, &mut random),
                2 | 3 => feedback(&mut host, &mut peer, &heard, &mut random),
                4 => {
                    let nanos = any(&mut random) & 0xffff_ffff;
                    host.wait(Duration::from_nanos(nanos));
                }
                // To the time that the endpoint asked for.
                5 => {
                    let due = host.endpoint.poll_timeout().map_or(host.now, |(at, _)| at);
                    host.now = host.now.max(due);
                }
                6 | 7 => application(&mut host, &mut random),
                8 => peer.skip(any(&mut random) & 0x3fff_ffff),
                _ => peer.from = if random.below(2) == 0 { home } else { ([192, 0, 2, 9], 7).into() },
            }
            if random.below(2) == 0 {
                host.turn(|_, datagram| heard.extend(peer.open(datagram).map(|(number, _)| number)));
            }
        }
        host.turn(|_, _| {});
        closed += usize::from(!host.closed.is_empty());
    }
    println!("{seeds} seeds, {closed} connections ended");
}
