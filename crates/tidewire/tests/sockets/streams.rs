//! Streams over real sockets: the bytes read are the bytes written, whatever else happens.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::pair::{pair, pseudo_random, within};
use tidewire::{CloseCode, CloseReason, Config, ConnectionLost, Stream, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn send(mut stream: impl tokio::io::AsyncWrite + Unpin, seed: u64, len: usize) {
    stream.write_all(&pseudo_random(seed, len)).await.unwrap();
    stream.shutdown().await.unwrap();
}

async fn expect(mut stream: impl tokio::io::AsyncRead + Unpin, seed: u64, len: usize) {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(received == pseudo_random(seed, len), "stream {seed}: {} of {len} bytes, or others", received.len());
}

/// Streams differ in their first byte, so that the peer knows which one it accepted.
async fn send_named(mut stream: Stream, name: u8, len: usize) {
    stream.write_u8(name).await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    tokio::join!(send(writer, name.into(), len), expect(reader, u64::from(name) + 100, len));
}

async fn answer_named(mut stream: Stream, len: usize) {
    let name = stream.read_u8().await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    tokio::join!(send(writer, u64::from(name) + 100, len), expect(reader, name.into(), len));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_streams_both_ways_at_once_arrive_identical() {
    const LEN: usize = 1_000_000;
    let pair = pair(Config::default()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for name in 0..4 {
        // Each side opens some streams.
        let (opener, accepter) = if name % 2 == 0 { (&pair.ours, &pair.theirs) } else { (&pair.theirs, &pair.ours) };
        let (opener, accepter) = (opener.clone(), accepter.clone());
        tasks.spawn(async move { send_named(opener.open().await.unwrap(), name, LEN).await });
        tasks.spawn(async move { answer_named(accepter.accept().await.unwrap(), LEN).await });
    }
    within(tasks.join_all()).await;
    let (ours, theirs) = (pair.ours.stats(), pair.theirs.stats());
    assert_eq!(ours.bytes.app_received + theirs.bytes.app_received, 8 * LEN as u64 + 4);
    assert_eq!(theirs.symbols.delivered, theirs.symbols.direct + theirs.symbols.repaired + theirs.symbols.resent);
}

#[tokio::test]
async fn one_half_ends_and_the_other_goes_on() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(b"question").await.unwrap();
        ours.shutdown().await.unwrap();
        assert_eq!(ours.write(b"more").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        let mut theirs = pair.theirs.accept().await.unwrap();
        let mut question = String::new();
        theirs.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        tokio::join!(send(theirs, 7, 300_000), expect(ours, 7, 300_000));
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_no_other_stream() {
    let config = Config::builder().stream_window(64 << 10).max_stream_window(64 << 10).build().expect("in range");
    let pair = pair(config).await;
    within(async {
        let stuck = pair.ours.open().await.unwrap();
        let stuck = tokio::spawn(send(stuck, 1, 1_000_000));
        let unread = pair.theirs.accept().await.unwrap();
        let quick = pair.ours.open().await.unwrap();
        let quick = tokio::spawn(send(quick, 2, 2_000_000));
        expect(pair.theirs.accept().await.unwrap(), 2, 2_000_000).await;
        quick.await.unwrap();
        assert!(!stuck.is_finished());
        expect(unread, 1, 1_000_000).await;
        stuck.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_dropped_stream_says_its_end_and_makes_room_for_another() {
    let config = Config::builder().max_streams(2).build().expect("in range");
    let pair = pair(config).await;
    within(async {
        // Opens more streams than are allowed at once: each is forgotten on both sides when it is done.
        for n in 0..20 {
            let mut ours = pair.ours.open().await.unwrap();
            ours.write_all(&[n; 3_000]).await.unwrap();
            drop(ours);
            let mut theirs = pair.theirs.accept().await.unwrap();
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, [n; 3_000]);
            // Nobody reads this stream. The writer learns that at some time.
            let _ = theirs.write_all(&[n; 3_000]).await;
        }
    })
    .await;
}

/// The typed error inside an I/O error.
fn stream_error(error: &std::io::Error) -> Option<StreamError> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>()).copied()
}

#[tokio::test]
async fn a_reset_reaches_the_reader_with_its_code_and_the_other_half_goes_on() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(b"half of it").await.unwrap();
        let mut theirs = pair.theirs.accept().await.unwrap();
        assert_eq!(theirs.read_u8().await.unwrap(), b'h');
        ours.reset(42);
        for _ in 0..2 {
            let error = theirs.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            assert_eq!(stream_error(&error), Some(StreamError::Reset(42)));
        }
        assert_eq!(stream_error(&ours.write_u8(1).await.unwrap_err()), Some(StreamError::Finished));
        tokio::join!(send(theirs, 7, 300_000), expect(ours, 7, 300_000));
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_stops_ends_the_writing_and_what_it_sends_goes_on() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_u8(0).await.unwrap();
        let mut theirs = pair.theirs.accept().await.unwrap();
        theirs.stop(7);
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
        let (reader, mut writer) = ours.split();
        let error = loop {
            if let Err(error) = writer.write_all(&[1; 10_000]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(stream_error(&error), Some(StreamError::Stopped(7)));
        assert_eq!(stream_error(&writer.shutdown().await.unwrap_err()), Some(StreamError::Stopped(7)));
        tokio::join!(send(theirs, 7, 300_000), expect(reader, 7, 300_000));
    })
    .await;
}

#[tokio::test]
async fn a_dropped_half_stops_or_ends_what_is_its_own() {
    let config = Config::builder().max_streams(1).build().expect("in range");
    let pair = pair(config).await;
    within(async {
        for _ in 0..5 {
            let (reader, mut writer) = pair.ours.open().await.unwrap().split();
            drop(reader);
            writer.write_all(b"question").await.unwrap();
            let (mut their_reader, mut their_writer) = pair.theirs.accept().await.unwrap().split();
            let error = loop {
                if let Err(error) = their_writer.write_all(&[1; 10_000]).await {
                    break error;
                }
            };
            assert_eq!(stream_error(&error), Some(StreamError::Stopped(0)));
            drop((writer, their_writer));
            let mut question = String::new();
            their_reader.read_to_string(&mut question).await.unwrap();
            assert_eq!(question, "question");
        }
    })
    .await;
}

#[tokio::test]
async fn what_arrived_before_the_end_can_be_read_after_it() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(b"the last words").await.unwrap();
        let mut theirs = pair.theirs.accept().await.unwrap();
        assert_eq!(theirs.read_u8().await.unwrap(), b't');
        pair.ours.close(CloseCode::Application(300), "enough");
        let reason = CloseReason::Peer { code: CloseCode::Application(300), reason: "enough".into() };
        assert_eq!(pair.theirs.closed().await, reason);
        // The error stays after the connection has ended.
        pair.server.close().await;
        let mut rest = [0; 13];
        theirs.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"he last words");
        let error = theirs.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let lost = error.get_ref().and_then(|inner| inner.downcast_ref::<ConnectionLost>());
        assert_eq!(lost, Some(&ConnectionLost(reason.clone())));
        assert_eq!(theirs.write(b"x").await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(pair.theirs.accept().await.unwrap_err(), ConnectionLost(reason));
        assert_eq!(pair.theirs.stats().bytes.app_received, 14);
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_readable_until_its_bytes_and_its_end_are_read() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(b"ab").await.unwrap();
        let (mut reader, _writer) = pair.theirs.accept().await.unwrap().split();
        for byte in [b'a', b'b'] {
            // Twice, since it takes nothing.
            poll_fn(|cx| reader.poll_readable(cx)).await;
            poll_fn(|cx| reader.poll_readable(cx)).await;
            assert_eq!(reader.read_u8().await.unwrap(), byte);
        }
        let mut waiting = pin!(poll_fn(|cx| reader.poll_readable(cx)));
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await, "readable without bytes");
        ours.shutdown().await.unwrap();
        waiting.await;
        assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 0);
        poll_fn(|cx| reader.poll_readable(cx)).await;
    })
    .await;
}

#[tokio::test]
async fn a_reset_that_was_found_by_waiting_is_still_read() {
    let pair = pair(Config::default()).await;
    within(async {
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(b"ab").await.unwrap();
        let (mut reader, _writer) = pair.theirs.accept().await.unwrap().split();
        assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 2);
        ours.reset(9);
        poll_fn(|cx| reader.poll_readable(cx)).await;
        let error = reader.read_u8().await.unwrap_err();
        assert_eq!(error.downcast::<StreamError>().unwrap(), StreamError::Reset(9));
    })
    .await;
}

#[tokio::test]
async fn delivery_is_known_without_an_answer_of_the_peer() {
    let pair = pair(Config::default()).await;
    within(async {
        assert!(pair.ours.has_delivered());
        let mut ours = pair.ours.open().await.unwrap();
        ours.write_all(&[7; 10_000]).await.unwrap();
        assert!(!pair.ours.has_delivered());
        ours.shutdown().await.unwrap();
        while !pair.ours.has_delivered() {
            tokio::task::yield_now().await;
        }
        // The other side reads it although the connection is closed at once.
        pair.ours.close(CloseCode::Done, "");
        let mut received = Vec::new();
        pair.theirs.accept().await.unwrap().read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [7; 10_000]);
    })
    .await;
}
