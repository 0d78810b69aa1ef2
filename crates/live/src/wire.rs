//! The bytes of live video between two ends (`docs/live.md`, "Every byte"): the greeting and the ends of a
//! session on the first stream, and the head of each message.
//!
//! [`super::meeting`] greets, [`super::feed`] writes heads, [`super::receiver`] reads them. Nothing is
//! allocated for a claimed length.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 7] = b"TWMEDIA";
const VERSION: u8 = 1;
/// Kind of a message that holds one datagram. Messages of other kinds are left to later versions.
const DATAGRAM: u8 = 1;
/// Kind of the records that end a session, in both directions.
const END: u8 = 1;
/// Bytes before the datagram in each message.
pub const HEAD: usize = 10;
/// Longest latency that can be agreed. Chosen: far below half of the 71 minutes after which stamps wrap.
pub const LONGEST_LATENCY: Duration = Duration::from_secs(60);

/// What an end does in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has the input.
    Sends,
    /// It has the output.
    Receives,
}

/// What the end that connected says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What that end does.
    pub side: Side,
    /// The latency that it asks for.
    pub latency: Duration,
}

/// The answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The session begins with this latency, the longer of the two that were asked for.
    Ready(Duration),
    /// Both ends send, or both receive.
    SameSide,
    /// The greeting has an unknown version.
    NotUnderstood,
    /// A code of a later version.
    Unknown(u8),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(latency) => write!(f, "ready, with a latency of {} ms", latency.as_millis()),
            Self::SameSide => f.write_str(
                "both ends send, or both receive: write the tidewire:// link first at the end that plays out, and last \
                 at the end that has the input",
            ),
            Self::NotUnderstood => f.write_str("the far side speaks another version of tidewire live"),
            Self::Unknown(code) => write!(f, "the far side refused with the unknown code {code}"),
        }
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the program, from 0.
    pub program: u8,
    /// Number of the datagram in its program, from 0; it wraps.
    pub sequence: u32,
    /// When the datagram came in, in microseconds of the sender's clock; it wraps after 71 minutes.
    pub stamp: u32,
}

impl Head {
    /// A message with the head and a datagram.
    pub fn message(self, datagram: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEAD + datagram.len());
        message.extend_from_slice(&[DATAGRAM, self.program]);
        message.extend_from_slice(&self.sequence.to_be_bytes());
        message.extend_from_slice(&self.stamp.to_be_bytes());
        message.extend_from_slice(datagram);
        message
    }

    /// The head and the datagram of a message; `None` if it is of another kind or too short.
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, datagram) = message.split_first_chunk::<HEAD>()?;
        let &[DATAGRAM, program, a, b, c, d, e, f, g, h] = head else { return None };
        let (sequence, stamp) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Some((Self { program, sequence, stamp }, datagram))
    }
}

/// Continues a counter of 32 bits that wraps: the value that ends in `low` and is nearest to `near`.
pub fn unwrap(near: i64, low: u32) -> i64 {
    // The difference of the low halves is right up to half of their range (RFC 1982 section 3.2).
    near + i64::from(low.wrapping_sub(near as u32) as i32)
}

/// What a receiver counted in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Datagrams that were played out on time.
    pub played: u64,
    /// Datagrams that were not.
    pub missing: u64,
    /// Those of them that arrived after their time.
    pub late: u64,
}

impl Played {
    /// Both together. A peer names its counts, so they saturate.
    pub fn plus(self, other: Self) -> Self {
        Self {
            played: self.played.saturating_add(other.played),
            missing: self.missing.saturating_add(other.missing),
            late: self.late.saturating_add(other.late),
        }
    }

    /// What a peer may say of so many datagrams: each of them was played or is missing, and is late once.
    pub fn of(self, sent: u64) -> Self {
        let played = self.played.min(sent);
        Self { played, missing: self.missing.min(sent - played), late: self.late.min(sent) }
    }
}

/// Writes the greeting.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_greeting(to: &mut (impl AsyncWrite + Unpin), greeting: Greeting) -> io::Result<()> {
    let side = if greeting.side == Side::Sends { 1 } else { 2 };
    to.write_all(&[&MAGIC[..], &[VERSION, side], &micros(greeting.latency)].concat()).await
}

/// Reads a greeting. The inner error is the answer to send.
///
/// # Errors
/// Fails if the stream fails or ends.
pub async fn read_greeting(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<Greeting, Answer>> {
    if read_version(from).await? != Some(VERSION) {
        return Ok(Err(Answer::NotUnderstood));
    }
    let (side, latency) = (from.read_u8().await?, duration(from.read_u32().await?));
    Ok(match side {
        1 => Ok(Greeting { side: Side::Sends, latency }),
        2 => Ok(Greeting { side: Side::Receives, latency }),
        _ => Err(Answer::NotUnderstood),
    })
}

/// Writes the answer.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_answer(to: &mut (impl AsyncWrite + Unpin), answer: Answer) -> io::Result<()> {
    let (code, latency) = match answer {
        Answer::Ready(latency) => (0, latency),
        Answer::SameSide => (1, Duration::ZERO),
        Answer::NotUnderstood => (2, Duration::ZERO),
        Answer::Unknown(code) => (code, Duration::ZERO),
    };
    to.write_all(&[&MAGIC[..], &[VERSION, code], &micros(latency)].concat()).await
}

/// Reads the answer.
///
/// # Errors
/// Fails if the stream fails or ends, or the peer is no `tidewire live`.
pub async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    if read_version(from).await?.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the far side is no tidewire live"));
    }
    let (code, latency) = (from.read_u8().await?, duration(from.read_u32().await?));
    Ok(match code {
        0 => Answer::Ready(latency),
        1 => Answer::SameSide,
        2 => Answer::NotUnderstood,
        other => Answer::Unknown(other),
    })
}

/// Tells the receiver that the input ended after this many datagrams of each program.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_end(to: &mut (impl AsyncWrite + Unpin), sent: &[u64]) -> io::Result<()> {
    let mut record = vec![END, u8::try_from(sent.len()).unwrap_or(u8::MAX)];
    sent.iter().take(usize::from(u8::MAX)).for_each(|sent| record.extend_from_slice(&sent.to_be_bytes()));
    to.write_all(&record).await
}

/// Reads how many datagrams of each program were sent.
///
/// # Errors
/// Fails if the stream fails or ends.
pub async fn read_end(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u64>> {
    expect_end(from).await?;
    let mut sent = Vec::new();
    for _ in 0..from.read_u8().await? {
        sent.push(from.read_u64().await?);
    }
    Ok(sent)
}

/// Tells the sender what was played out.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_played(to: &mut (impl AsyncWrite + Unpin), counts: Played) -> io::Result<()> {
    let mut record = vec![END];
    [counts.played, counts.missing, counts.late].iter().for_each(|n| record.extend_from_slice(&n.to_be_bytes()));
    to.write_all(&record).await
}

/// Reads what was played out.
///
/// # Errors
/// Fails if the stream fails or ends.
pub async fn read_played(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Played> {
    expect_end(from).await?;
    Ok(Played { played: from.read_u64().await?, missing: from.read_u64().await?, late: from.read_u64().await? })
}

async fn expect_end(from: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match from.read_u8().await? {
        END => Ok(()),
        other => {
            let wrong = format!("the far side sent a record of the unknown kind {other}");
            Err(io::Error::new(io::ErrorKind::InvalidData, wrong))
        }
    }
}

fn micros(time: Duration) -> [u8; 4] {
    u32::try_from(time.min(LONGEST_LATENCY).as_micros()).unwrap_or(u32::MAX).to_be_bytes()
}

fn duration(micros: u32) -> Duration {
    Duration::from_micros(micros.into()).min(LONGEST_LATENCY)
}

/// The version behind the magic; `None` if there is another magic.
async fn read_version(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
    let mut head = [0; MAGIC.len() + 1];
    from.read_exact(&mut head).await?;
    Ok(head.strip_prefix(MAGIC).map(|rest| rest[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_head_and_datagram_and_other_kinds_are_none() {
        let head = Head { program: 2, sequence: 0x0102_0304, stamp: 0xa0b0_c0d0 };
        let message = head.message(b"ts");
        assert_eq!(message, b"\x01\x02\x01\x02\x03\x04\xa0\xb0\xc0\xd0ts");
        assert_eq!(Head::parse(&message), Some((head, &b"ts"[..])));
        assert_eq!(Head::parse(&message[..HEAD]), Some((head, &b""[..])));
        assert_eq!(Head::parse(&message[..HEAD - 1]), None);
        assert_eq!(Head::parse(&[&[2], &message[1..]].concat()), None);
    }

    #[test]
    fn a_peer_says_no_more_of_datagrams_than_there_were() {
        let most = Played { played: u64::MAX, missing: u64::MAX, late: u64::MAX };
        assert_eq!(most.of(7), Played { played: 7, missing: 0, late: 7 });
        let honest = Played { played: 5, missing: 2, late: 1 };
        assert_eq!((honest.of(7), honest.of(7).plus(most)), (honest, most));
    }

    #[test]
    fn counters_go_on_where_they_wrap() {
        let end = i64::from(u32::MAX);
        assert_eq!(unwrap(end - 1, 3), end + 4);
        assert_eq!(unwrap(end + 4, u32::MAX - 1), end - 1);
        assert_eq!(unwrap(0, u32::MAX), -1);
        assert_eq!((unwrap(7, 7), unwrap(3 * (end + 1) + 5, 6)), (7, 3 * (end + 1) + 6));
    }

    #[tokio::test]
    async fn what_is_said_is_read() {
        let greeting = Greeting { side: Side::Sends, latency: Duration::from_millis(80) };
        let mut bytes = Vec::new();
        write_greeting(&mut bytes, greeting).await.unwrap();
        assert_eq!(bytes, b"TWMEDIA\x01\x01\x00\x01\x38\x80");
        assert_eq!(read_greeting(&mut &bytes[..]).await.unwrap(), Ok(greeting));
        for (at, by) in [(0, b'X'), (7, 2), (8, 3)] {
            let mut other = bytes.clone();
            other[at] = by;
            assert_eq!(read_greeting(&mut &other[..]).await.unwrap(), Err(Answer::NotUnderstood));
        }
        let ready = Answer::Ready(Duration::from_millis(120));
        for answer in [ready, Answer::SameSide, Answer::NotUnderstood, Answer::Unknown(9)] {
            let mut bytes = Vec::new();
            write_answer(&mut bytes, answer).await.unwrap();
            assert_eq!(read_answer(&mut &bytes[..]).await.unwrap(), answer);
        }
        assert!(read_answer(&mut &b"TWTUNNL\x01\x00\x00\x00\x00\x00"[..]).await.is_err());
    }

    #[tokio::test]
    async fn a_latency_beyond_the_longest_is_the_longest() {
        let mut bytes = Vec::new();
        write_greeting(&mut bytes, Greeting { side: Side::Receives, latency: Duration::from_secs(900) }).await.unwrap();
        assert_eq!(read_greeting(&mut &bytes[..]).await.unwrap().unwrap().latency, LONGEST_LATENCY);
        bytes[9..].fill(0xff);
        assert_eq!(read_greeting(&mut &bytes[..]).await.unwrap().unwrap().latency, LONGEST_LATENCY);
    }

    #[tokio::test]
    async fn both_ends_of_a_session_are_told() {
        let mut bytes = Vec::new();
        write_end(&mut bytes, &[7, 9]).await.unwrap();
        assert_eq!(read_end(&mut &bytes[..]).await.unwrap(), [7, 9]);
        assert!(read_end(&mut &bytes[..9]).await.is_err());
        let (mut bytes, counts) = (Vec::new(), Played { played: 5, missing: 2, late: 1 });
        write_played(&mut bytes, counts).await.unwrap();
        assert_eq!(read_played(&mut &bytes[..]).await.unwrap(), counts);
        bytes[0] = 7;
        assert!(read_played(&mut &bytes[..]).await.is_err());
    }
}
