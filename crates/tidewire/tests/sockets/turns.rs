//! A task that always finds data or room is left after some steps, so that what it selects beside is heard.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tidewire::{Config, LaneConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::yield_now;

use crate::pair::{pair, within};

/// Steps that are tried in a row: far more than a turn has, and one-byte records that all fit into the first
/// symbols.
const TRIED: usize = 1_000;
/// The budget of a task in tokio 1.
const TURN: usize = 128;

/// How many steps of two turns are ready, each tried until one is not.
async fn ready(mut step: impl FnMut(&mut Context<'_>) -> bool) -> [usize; 2] {
    let mut turns = [0; 2];
    for turn in &mut turns {
        yield_now().await;
        *turn = poll_fn(|cx| Poll::Ready((0..TRIED).take_while(|_| step(cx)).count())).await;
    }
    turns
}

#[tokio::test]
async fn endless_records_leave_their_task_now_and_then() {
    let pair = pair(Config::default()).await;
    let steps = async {
        let mut stream = pair.ours.open().await.unwrap();
        let write = ready(|cx| matches!(Pin::new(&mut stream).poll_write(cx, b"r"), Poll::Ready(Ok(1)))).await;
        stream.write_all(&[0; TRIED]).await.unwrap();
        while !pair.ours.has_delivered() {
            yield_now().await;
        }
        let mut theirs = pair.theirs.accept().await.unwrap();
        let read = ready(|cx| {
            let (mut byte, at) = ([0], Pin::new(&mut theirs));
            at.poll_read(cx, &mut ReadBuf::new(&mut byte)).is_ready()
        })
        .await;
        let lane = pair.ours.open_lane(&LaneConfig::default()).unwrap();
        let room = ready(|cx| pin!(pair.ours.lane_room(lane, 1_000)).poll(cx).is_ready()).await;
        [write, read, room]
    };
    // The task was left although there was more, which the second turn shows.
    let [write, read, room] = within(steps).await;
    let all = [write, read, room].concat();
    assert!(all.iter().all(|steps| (1..=TURN).contains(steps)), "writes {write:?}, reads {read:?}, room {room:?}");
}
