//! What `live` reports: each event of [`tidewire_live`] as a line for programs and a sentence for people.

use serde::Serialize;
use tidewire_command::report::{self, Console, Event as Common, Role};
use tidewire_live::{Counts, Event, Over, Received, Sent, Side};

/// What `live` prints with `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line<'a> {
    /// A session has begun.
    Session {
        /// The peer's address.
        peer: &'a str,
        /// The latency that both ends use, in milliseconds.
        latency_ms: f64,
    },
    /// A connection has ended.
    Lost {
        /// The peer's address.
        peer: &'a str,
        /// In words for people.
        reason: String,
    },
    /// The bitrate that an encoder may have, when it has changed.
    Target {
        /// The receiver's address.
        peer: &'a str,
        /// Bits of the stream in each second, without what repair and headers take.
        bitrate_bps: u64,
    },
    /// What the sender took in and sent, every five seconds and at the end.
    Sent(Sent),
    /// What the receiver played out, every five seconds and at the end.
    Played(Received),
}

impl From<Counts> for Line<'_> {
    fn from(counts: Counts) -> Self {
        match counts {
            Counts::Sent(sent) => Self::Sent(sent),
            Counts::Received(received) => Self::Played(received),
        }
    }
}

/// Reports an event.
pub fn tell(event: Event, console: &Console) {
    match event {
        Event::Connected { peer } => console.event(&Common::Connected { peer: peer.to_string() }),
        Event::Session { side, peer, latency } => {
            let ms = latency.as_millis();
            console.say(&match side {
                Side::Sends => format!("sending to {peer}, which plays out {ms} ms later"),
                Side::Receives => format!("playing out what {peer} sends, {ms} ms after the fastest way"),
            });
            console.event(&Line::Session { peer: &peer.to_string(), latency_ms: 1e3 * latency.as_secs_f64() });
        }
        Event::Target { peer, bitrate_bps } => {
            console.event(&Line::Target { peer: &peer.to_string(), bitrate_bps });
        }
        Event::InputFailed { name, error } => {
            console.warn(&format!("the input {name} failed: {error}; the others go on"));
        }
        Event::Refused { name, error } => {
            console.warn(&format!("{name}: the system refuses datagrams ({error}); live goes on and tries each"));
        }
        Event::Rejoined { name } => {
            console.warn(&format!("{name}: joined the group again; its device had gone, and the membership with it"));
        }
        Event::Lost { peer, reason } => {
            console.event(&Line::Lost { peer: &peer.to_string(), reason: reason.to_string() });
            console.warn(&format!("{peer} is gone: {reason}"));
        }
        Event::Over(over) => on_over(&over, console),
        _ => {}
    }
}

fn on_over(over: &Over, console: &Console) {
    let Over { counts, stats, elapsed } = over;
    tell_counts(*counts, console);
    let (role, bytes) = match counts {
        Counts::Sent(_) => (Role::Sender, stats.bytes.app_sent),
        Counts::Received(_) => (Role::Receiver, stats.bytes.app_received),
    };
    console.summary(&report::summary(stats, role, bytes, *elapsed));
}

/// Reports counts at the end of a connection.
pub fn tell_counts(counts: Counts, console: &Console) {
    console.event(&Line::from(counts));
    console.say(&match &counts {
        Counts::Sent(sent) => words_of_sent(sent),
        Counts::Received(received) => words_of_received(received),
    });
}

/// For people. Counts of trouble appear only above 0.
fn words_of_sent(sent: &Sent) -> String {
    let Sent { packets, receivers, unheard, refused, strange, gaps, late, .. } = sent;
    let mut text = format!("{packets} datagrams in, {receivers} receivers");
    if *unheard > 0 {
        text.push_str(&format!(", {unheard} without a receiver"));
    }
    if *gaps > 0 {
        text.push_str(&format!(", {gaps} missing before they came in"));
    }
    if *late > 0 {
        text.push_str(&format!(", {late} too late for their RTP timestamps, sent as far as they can be in time"));
    }
    if *strange > 0 {
        text.push_str(&format!(", {strange} that are no RTP packets and were left out"));
    }
    if *refused > 0 {
        text.push_str(&format!(", {refused} too many for the path"));
    }
    text
}

/// For people. Counts of trouble appear only above 0.
fn words_of_received(received: &Received) -> String {
    let Received { packets, missing, late, .. } = received;
    let mut text = format!("{packets} datagrams out, {missing} missing");
    if *late > 0 {
        text.push_str(&format!(", {late} of them late"));
    }
    if let (Some(p50), Some(p999)) = (received.delay_ms.p50, received.jitter_ms.p999) {
        text.push_str(&format!(", delay {p50:.1} ms, jitter p99.9 {p999:.2} ms"));
    }
    text
}
