//! A link whose capacity falls by half under a stream, with an encoder that follows the reported bitrate and
//! with one that does not.
//!
//! This is a part of `cargo measure lab`. The encoder is a source of numbered packets, whose pace changes at
//! once. Invariant: the time of the fall is that of the link, whose trace begins with its process.

use super::carrier::Carrier;
use super::stream::{DATAGRAM, PACKETS, Player, datagram};
use super::{Measured, PATIENCE};
use crate::context::Context;
use crate::figures::emulator::Emulator;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Capacities in Mbit/s, before and after.
const CAPACITIES: [u64; 2] = [12, 6];
/// When the capacity falls, and the end of the run.
const FALL: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(45);
/// Start-up, and the time after the fall in which the encoder may be too fast.
const STEADY: Duration = Duration::from_secs(5);
const ADAPTS: Duration = Duration::from_secs(3);
/// The encoder's own bitrate, in bits per second.
const WANTED: f64 = 6e6;
const BUDGET_MS: u64 = 80;
/// A picture that stands longer than this is frozen. Chosen: a dozen frames.
const FROZEN: Duration = Duration::from_millis(500);

/// A datagram: when it was sent, and when it came.
type Fate = (Instant, Option<Instant>);

/// Measures both encoders. The goal: no frozen picture if the encoder follows.
pub fn measure(context: &Context, binary: &Path, _: bool) -> Measured {
    let trace = context.target.join("lab-live-fall.trace");
    std::fs::write(&trace, opportunities()).map_err(|e| format!("{}: {e}", trace.display()))?;
    let [before, after] = CAPACITIES;
    let mut text = format!(
        "{before} Mbit/s become {after} after {} s; 60 ms, loss 2 %, one way + {BUDGET_MS} ms; the encoder makes 6 Mbit/s or nine tenths of `target`.\n\n\
         | encoder | missing before | in the {} s after | later | longest time without a packet | last target |\n| --- | --- | --- | --- | --- | --- |\n",
        FALL.as_secs(),
        ADAPTS.as_secs(),
    );
    let mut holds = true;
    for follows in [true, false] {
        let (begin, fates, target) = run(binary, &trace, follows)?;
        let missing = |from: Duration, to: Duration| {
            let part = fates.iter().filter(|(sent, _)| (begin + from..begin + to).contains(sent));
            let (all, lost) = part.fold((0, 0), |(all, lost), (_, came)| (all + 1, lost + u32::from(came.is_none())));
            100.0 * f64::from(lost) / f64::from(all)
        };
        let silence = longest_silence(&fates, begin + STEADY);
        text += &format!(
            "| {} | {:.2} % | {:.1} % | {:.2} % | {:.0} ms | {:.1} Mbit/s |\n",
            if follows { "follows" } else { "does not" },
            missing(STEADY, FALL),
            missing(FALL, FALL + ADAPTS),
            missing(FALL + ADAPTS, END),
            silence.as_secs_f64() * 1e3,
            target / 1e6,
        );
        holds &= !follows || silence <= FROZEN;
    }
    Ok((text, holds))
}

/// Runs the stream once. Returns when the link began, the fates, and the last target.
fn run(binary: &Path, trace: &Path, follows: bool) -> Result<(Instant, Vec<Fate>, f64), String> {
    let player = Player::of_numbers()?;
    let ready = Instant::now() + PATIENCE;
    let carrier = Carrier::Tidewire(BUDGET_MS, &[]);
    let far = carrier.start_far(binary, player.address(), ready)?;
    let rate = format!("trace:{}", trace.display());
    let link = ["--rate", &rate, "--back-rate", "25mbit", "--rtt", "60ms", "--loss", "2%", "--seed", "1"];
    let (_link, entry) = Emulator::before(binary, &link, &far.target, ready)?;
    let begin = Instant::now();
    let mut near = carrier.start_near(binary, &far, &entry, ready)?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let (mut sent, mut target, mut bitrate, mut next) = (Vec::new(), f64::NAN, WANTED / 2.0, Instant::now());
    while begin.elapsed() < END {
        if let Some(told) = near.target() {
            target = told;
            bitrate = if follows { WANTED.min(0.9 * told) } else { WANTED };
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        // A queue that is full takes it as the link would.
        let _ = socket.send_to(&datagram((sent.len() - 1) as u64), near.entry);
        next += Duration::from_secs_f64((8 * DATAGRAM) as f64 / bitrate);
    }
    thread::sleep(super::DRAIN);
    let mut fates: Vec<Fate> = sent.into_iter().map(|at| (at, None)).collect();
    for (number, at) in player.finish() {
        // One packet tells of its datagram.
        let index = usize::try_from(number).unwrap_or(usize::MAX) / PACKETS;
        if let Some((_, came)) = fates.get_mut(index) {
            *came = Some(at);
        }
    }
    Ok((begin, fates, target))
}

/// The longest time between two packets at the player, of those sent from `steady` on.
fn longest_silence(fates: &[Fate], steady: Instant) -> Duration {
    let mut came: Vec<Instant> =
        fates.iter().filter(|(sent, _)| *sent >= steady).filter_map(|(_, came)| *came).collect();
    came.sort_unstable();
    came.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap_or(Duration::MAX)
}

/// The trace: a line for each packet of 1,500 bytes that may leave, with its millisecond.
fn opportunities() -> String {
    let [before, after] = CAPACITIES;
    // It must not begin anew before the run ends.
    let last = (END + PATIENCE).as_millis() as u64;
    let (mut text, mut bits) = (String::new(), 0);
    for millisecond in 1..=last {
        bits += 1_000 * if u128::from(millisecond) <= FALL.as_millis() { before } else { after };
        while bits >= 12_000 {
            bits -= 12_000;
            text += &format!("{millisecond}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_has_both_capacities() {
        let text = opportunities();
        let in_second = |second: u64| {
            let part = 1_000 * second + 1..=1_000 * (second + 1);
            text.lines().filter(|line| part.contains(&line.parse().unwrap())).count()
        };
        assert_eq!((in_second(3), in_second(30)), (1_000, 500));
    }
}
