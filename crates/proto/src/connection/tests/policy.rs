//! POLICY from a hostile peer.

use super::*;
use crate::profile::STREAM;

/// A connection that received these POLICY texts, one packet for each.
fn told(config: Config, peer: Parameters, texts: &[&str]) -> Connection {
    let (mut us, mut peer) = accepted(config, peer);
    for text in texts {
        peer.say(&mut us, &[Frame::Policy(text)]);
    }
    us
}

#[test]
fn a_policy_is_taken_once_and_only_with_codes_that_the_peer_decodes() {
    let blocks = "generations cauchy block:32,8";
    let us = told(Config::default(), Parameters::default(), &[blocks]);
    assert_eq!(
        (us.agreed.profile.layout, us.lanes.streams.sender.layout()),
        (Layout::Generations, Layout::Generations)
    );
    let us = told(Config::default(), Parameters::default(), &["sliding rlc every:5", "sliding rlc every:9"]);
    assert_eq!(us.agreed.profile.redundancy.to_string(), "every:5");
    let only_rlc = || Parameters { codes: CodeSet::RLC, ..Parameters::default() };
    let us = told(Config::default(), only_rlc(), &[blocks]);
    assert_eq!((us.agreed.profile, us.stats().policy_followed), (STREAM, false));
    let short = || Parameters { max_span: 16, ..Parameters::default() };
    assert_eq!(
        told(Config::default(), short(), &[blocks]).agreed.profile,
        STREAM,
        "longer than the peer's longest span"
    );
}

#[test]
fn a_hostile_policy_changes_nothing_and_ends_nothing() {
    let long = "generations rlc16 block:".to_owned() + &"9".repeat(200);
    for text in
        ["", "sliding rlc every:1.001", "generations raptor block:32,8", "sliding rlc every:5\n", "\u{1b}[2J", &long]
    {
        // Only the first text is read; a later one cannot try again.
        let us = told(Config::default(), Parameters::default(), &[text, "sliding rlc every:5"]);
        assert!(us.is_established(), "{text:?}");
        assert_eq!((us.agreed.profile, us.stats().policy_followed), (STREAM, false), "{text:?}");
    }
    let config = Config::builder().follows_peer(false).build().expect("in range");
    assert_eq!(told(config, Parameters::default(), &["sliding rlc every:5"]).agreed.profile, STREAM);
}

#[test]
fn what_waits_to_be_sent_keeps_its_layout() {
    let (mut us, mut peer) = accepted(Config::default(), Parameters::default());
    let stream = us.open_stream().expect("credit");
    us.write(stream, b"tide").expect("room");
    peer.say(&mut us, &[Frame::Policy("generations cauchy block:32,8")]);
    assert_eq!((us.agreed.profile, us.lanes.streams.sender.layout()), (STREAM, Layout::Sliding));
}
