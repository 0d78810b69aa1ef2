//! Messages over real sockets.

use std::time::Duration;

use crate::pair::{pair, pseudo_random, within};
use tidewire::{
    CloseCode, CloseReason, Config, ConnectionLost, Delivery, LaneConfig, LaneError, LaneId, MessageError, Outgoing,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn messages_of_all_lengths_come_whole_and_in_order() {
    let pair = pair(Config::default()).await;
    let mut config = LaneConfig::default();
    config.delivery = Some(Delivery::InOrder);
    let lane = pair.ours.open_lane(&config).unwrap();
    let lengths = [0, 1, 1_000, 1_500, 40_000, 256 << 10, 3, 100_000];
    within(async {
        let send = async {
            for (n, len) in lengths.into_iter().enumerate() {
                pair.ours.send_message(lane, &pseudo_random(n as u64, len), 60 * SECOND).await.unwrap();
            }
        };
        let receive = async {
            for (n, len) in lengths.into_iter().enumerate() {
                let message = pair.theirs.receive_message().await.unwrap();
                assert!((message.lane, message.data) == (lane, pseudo_random(n as u64, len)), "message {n}");
            }
        };
        tokio::join!(send, receive);
    })
    .await;
    let (ours, theirs) = (pair.ours.stats().messages, pair.theirs.stats().messages);
    assert_eq!((ours.sent, theirs.delivered, theirs.dropped), (8, 8, 0));
}

#[tokio::test]
async fn a_sender_faster_than_the_path_waits_for_room() {
    let config = Config::builder().max_rate(Some(100_000_000)).build().expect("in range");
    let pair = pair(config).await;
    let lane = pair.ours.open_lane(&LaneConfig::default()).unwrap();
    within(async {
        let send = async {
            for n in 0..60 {
                pair.ours.send_message(lane, &pseudo_random(n, 100_000), 60 * SECOND).await.unwrap();
            }
        };
        let receive = async {
            for _ in 0..60 {
                assert_eq!(pair.theirs.receive_message().await.unwrap().data.len(), 100_000);
            }
        };
        tokio::join!(send, receive);
    })
    .await;
}

/// Messages are asked for only while there is room, and taken many at a time.
#[tokio::test]
async fn a_lane_is_filled_as_it_sends() {
    let config = Config::builder().max_rate(Some(50_000_000)).message_memory(8 << 20).build().expect("in range");
    let pair = pair(config).await;
    let mut config = LaneConfig::default();
    config.queue = Some(Duration::from_millis(2));
    let lane = pair.ours.open_lane(&config).unwrap();
    const COUNT: u64 = 3_000;
    within(async {
        let send = async {
            let (mut next, mut rounds) = (0..COUNT, 0);
            while !next.is_empty() {
                pair.ours.lane_room(lane, 1_000).await.unwrap();
                pair.ours
                    .fill_lane(lane, 1_000, || {
                        let data = pseudo_random(next.next()?, 1_000);
                        Some(Outgoing { data, lifetime: 60 * SECOND, delivery: Delivery::InOrder, important: false })
                    })
                    .unwrap();
                rounds += 1;
            }
            assert!(rounds > COUNT / 100, "2 ms at 50 Mbit/s are 12 messages; they were taken in {rounds} rounds");
        };
        let receive = async {
            let (mut messages, mut n) = (Vec::new(), 0);
            while n < COUNT {
                pair.theirs.receive_messages(&mut messages).await.unwrap();
                for message in messages.drain(..) {
                    assert!(message.data == pseudo_random(n, 1_000), "message {n}");
                    n += 1;
                }
            }
        };
        tokio::join!(send, receive);
    })
    .await;
    assert!(pair.ours.rtt() > Duration::ZERO);
}

#[tokio::test]
async fn what_cannot_be_sent_says_why() {
    let pair = pair(Config::default()).await;
    let ours = &pair.ours;
    within(async {
        assert_eq!(ours.send_message(LaneId(1), b"x", SECOND).await, Err(MessageError::UnknownLane));
        let lane = ours.open_lane(&LaneConfig::default()).unwrap();
        let long = vec![0; (256 << 10) + 1];
        let too_long = MessageError::TooLong { len: long.len(), most: 256 << 10 };
        assert_eq!(ours.send_message(lane, &long, SECOND).await, Err(too_long));
        ours.send_message(lane, b"last words", SECOND).await.unwrap();
        assert_eq!(pair.theirs.receive_message().await.unwrap().data, b"last words");
        ours.close(CloseCode::Done, "");
        let reason = CloseReason::Peer { code: CloseCode::Done, reason: String::new() };
        assert_eq!(pair.theirs.receive_message().await, Err(ConnectionLost(reason)));
        assert_eq!(ours.send_message(lane, b"x", SECOND).await, Err(MessageError::NotConnected));
        ours.closed().await;
        assert_eq!(ours.open_lane(&LaneConfig::default()), Err(LaneError::NotConnected));
    })
    .await;
}
