//! How two ends agree to carry packets, on the first stream of a connection (`docs/tunnel.md` section 1).
//!
//! [`crate::greet`] and [`crate::admit`] call it. Nothing is allocated for a claimed length.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 7] = b"TWTUNNL";
const VERSION: u8 = 1;

/// The answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tunnel is up. The answering end takes packets of at most this many bytes.
    Ready {
        /// Largest packet in bytes.
        mtu: u16,
    },
    /// The answering end has no networks for this peer.
    NoPeer,
    /// The greeting has an unknown version.
    NotUnderstood,
    /// A code of a later version.
    Unknown(u8),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { mtu } => write!(f, "ready for packets of {mtu} bytes"),
            Self::NoPeer => f.write_str("the far side has no networks for our key"),
            Self::NotUnderstood => f.write_str("the far side is of another version"),
            Self::Unknown(code) => write!(f, "the far side refused with the unknown code {code}"),
        }
    }
}

/// Writes the greeting.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_greeting(to: &mut (impl AsyncWrite + Unpin), mtu: u16) -> io::Result<()> {
    to.write_all(&[&MAGIC[..], &[VERSION], &mtu.to_be_bytes()].concat()).await
}

/// Reads the greeting: the sender's largest packet. The inner error is the answer to send.
///
/// # Errors
/// Fails if the stream fails or ends.
pub async fn read_greeting(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<u16, Answer>> {
    if read_version(from).await? != Some(VERSION) {
        return Ok(Err(Answer::NotUnderstood));
    }
    Ok(Ok(from.read_u16().await?))
}

/// Writes the answer.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_answer(to: &mut (impl AsyncWrite + Unpin), answer: Answer) -> io::Result<()> {
    let (code, mtu) = match answer {
        Answer::Ready { mtu } => (0, mtu),
        Answer::NoPeer => (1, 0),
        Answer::NotUnderstood => (2, 0),
        Answer::Unknown(code) => (code, 0),
    };
    to.write_all(&[&MAGIC[..], &[VERSION, code], &mtu.to_be_bytes()].concat()).await
}

/// Reads the answer.
///
/// # Errors
/// Fails if the stream fails or ends, or the peer is no `tidewire tunnel`.
pub async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    if read_version(from).await?.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the far side is no tidewire tunnel"));
    }
    let (code, mtu) = (from.read_u8().await?, from.read_u16().await?);
    Ok(match code {
        0 => Answer::Ready { mtu },
        1 => Answer::NoPeer,
        2 => Answer::NotUnderstood,
        other => Answer::Unknown(other),
    })
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

    #[tokio::test]
    async fn greetings_and_answers_survive_and_others_are_refused() {
        let mut bytes = Vec::new();
        write_greeting(&mut bytes, 1_400).await.unwrap();
        assert_eq!(bytes, b"TWTUNNL\x01\x05\x78");
        assert_eq!(read_greeting(&mut &bytes[..]).await.unwrap(), Ok(1_400));
        assert!(read_greeting(&mut &bytes[..9]).await.is_err());
        for (at, by) in [(0, b'X'), (7, 2)] {
            let mut other = bytes.clone();
            other[at] = by;
            assert_eq!(read_greeting(&mut &other[..]).await.unwrap(), Err(Answer::NotUnderstood));
        }
        for answer in [Answer::Ready { mtu: 1_280 }, Answer::NoPeer, Answer::NotUnderstood, Answer::Unknown(9)] {
            let mut bytes = Vec::new();
            write_answer(&mut bytes, answer).await.unwrap();
            assert_eq!(read_answer(&mut &bytes[..]).await.unwrap(), answer);
        }
        assert!(read_answer(&mut &b"TWFORWD\x01\x00\x00\x00"[..]).await.is_err());
    }
}
