//! No storm on a host that cannot keep up: what is sent for each byte, and how long it takes.
//!
//! Timers whose premise is that nothing came (probe timeout, loss, due feedback, idle and handshake timeouts)
//! do not fire while the news waits unread in the socket, and drops at a full socket slow the sender down
//! (docs/recovery.md section 2).

use super::*;

/// IP bytes of both ends for each byte of data. A client alone has 1.15: headers of 1,200 bytes and one
/// FEEDBACK of about 90 bytes for each record.
const CALM: f64 = 1.2;
/// The same of a host that cannot keep up.
const OVERLOADED: f64 = 1.3;
/// Time until all are done, in parts of the least time that the bytes take on the host.
const LONGEST: f64 = 1.5;
/// Longest time without progress of any client. The goal is 2 s, which 300 clients miss (docs/limits.md).
const STALL: Duration = Duration::from_millis(2_500);

fn check(case: &Case, most: f64) {
    let outcome = case.run();
    assert!(outcome.is_whole(), "{case:?}");
    assert!(outcome.report.sent_per_byte() <= most, "{case:?}: {} sent for one", outcome.report.sent_per_byte());
    assert!(outcome.times_needed() <= LONGEST, "{case:?}: {} times the least time", outcome.times_needed());
    let stall = outcome.report.longest_stall();
    assert!(stall <= STALL, "{case:?}: a client had no progress for {stall:?}");
}

#[test]
fn a_host_that_keeps_up_sends_little_beside_the_data() {
    for clients in [1, 50, 80] {
        check(&Case::new(clients, 1), CALM);
    }
}

#[test]
fn a_host_that_cannot_keep_up_sends_little_beside_the_data() {
    for (clients, seed) in [(100, 1), (150, 2)] {
        check(&Case::new(clients, seed), OVERLOADED);
    }
}

#[test]
#[ignore = "slow"]
fn no_number_of_clients_causes_a_storm() {
    for seed in 1..=3 {
        for clients in [100, 125, 150, 200, 300] {
            check(&Case::new(clients, seed), OVERLOADED);
        }
    }
}
