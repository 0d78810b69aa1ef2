//! What an end takes for a sign of changed symbols.

use core::net::SocketAddr;
use std::sync::Arc;

use super::{End, PEER, RELAYED_HEADER, end_to_end};
use crate::Time;
use crate::config::Config;
use crate::connection::Received;
use crate::crypto::{AwsLc, Secret};
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::recode::RELAYED_DATAGRAM;
use crate::wire::Datagram;

const NOW: Time = Time::from_millis(1);

fn session(listen: bool, seed: u8) -> Endpoint {
    let connection = end_to_end(&Config::default(), RELAYED_DATAGRAM).expect("in range");
    let credentials = Secret::new([7; 32]).into();
    Endpoint::new(EndpointConfig { credentials, listen, connection, provider: Arc::new(AwsLc) }, [seed; 32])
}

/// The datagrams that an endpoint sends now.
fn sent(endpoint: &mut Endpoint) -> Vec<Vec<u8>> {
    let mut out = [0; 1_500];
    let mut datagrams = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(NOW, 1, &mut out) {
        datagrams.push(out[..transmit.len].to_vec());
    }
    datagrams
}

fn hand(endpoint: &mut Endpoint, datagrams: &[Vec<u8>], from: SocketAddr) {
    for datagram in datagrams {
        let mut datagram = datagram.clone();
        endpoint.handle_datagram(Received { at: NOW, from, to: None, ecn: None, datagram: &mut datagram });
    }
}

/// Connects `near`, and returns what `far` answered to its HELLO.
fn connect(near: &mut Endpoint, far: &mut Endpoint) -> Vec<Vec<u8>> {
    near.connect(NOW, PEER).expect("a secret");
    hand(far, &sent(near), PEER);
    let answer = sent(far);
    hand(near, &answer, PEER);
    for _ in 0..3 {
        hand(far, &sent(near), PEER);
        hand(near, &sent(far), PEER);
    }
    answer
}

/// Delivers a datagram as the hop's symbol. Returns false if it accuses the relay.
fn receive(end: &mut End, datagram: &[u8], session: &mut Endpoint) -> bool {
    end.buffer[..RELAYED_HEADER].copy_from_slice(&(datagram.len() as u16).to_be_bytes());
    let len = RELAYED_HEADER + datagram.len();
    end.buffer[RELAYED_HEADER..len].copy_from_slice(datagram);
    end.deliver(NOW, len, session)
}

/// An end that heard nothing for long asks whether the other still knows it. When the path works again, the
/// answer may come although nobody waits for it any more. So may that to another end with the same secret.
#[test]
fn a_late_handshake_packet_is_no_sign_of_changed_symbols() {
    let (mut near, mut far, mut other) = (session(false, 1), session(true, 2), session(false, 3));
    connect(&mut near, &mut far);
    assert!(near.connections().all(|(_, connection)| connection.is_established()), "the session is up");
    let answers = connect(&mut other, &mut far);
    let mut end = End::new(PEER);
    for answer in &answers {
        assert!(matches!(Datagram::parse(answer), Ok(Datagram::Long(_))), "an answer to a HELLO");
        assert!(receive(&mut end, answer, &mut near), "nobody is accused");
    }
    assert_eq!(near.stats().strangers, answers.len() as u64, "they are refused all the same");
    // A short packet of no session cannot come from the other end.
    assert!(!receive(&mut end, &[0x40; 60], &mut near), "changed symbols are a sign");
}
