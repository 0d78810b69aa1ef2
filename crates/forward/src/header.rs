//! The header of each forwarded stream, in both directions (`docs/forward.md` section 1): the request of the
//! end that opened it, and the answer of the other.
//!
//! A reader allocates nothing for a claimed length, and reads no byte beyond the header, because the
//! following bytes belong to the TCP connection.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::target::{MAX_HOST, Target};

const MAGIC: &[u8; 7] = b"TWFORWD";
pub(crate) const VERSION: u8 = 1;
/// Longest body of a request: the fields of this version, and as much again for later versions.
const MAX_BODY: usize = 512;
/// Bytes of the fields beside the host: kind, port, length of the host, id.
const FIXED: usize = 6;

const CHECK: u8 = 1;
const CONNECT: u8 = 2;
const LISTEN: u8 = 3;
const ACCEPTED: u8 = 4;
const DRAIN: u8 = 5;

/// The request at the beginning of a stream. Only the server sends [`Request::Accepted`], only the client the
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks whether a target is allowed.
    Check(Target),
    /// Asks for a TCP connection.
    Connect(Target),
    /// Asks the server to listen.
    Listen {
        /// The client's number for the port.
        id: u16,
        /// Where to listen. With port 0 the system of the server chooses the port.
        address: SocketAddr,
    },
    /// The server accepted a TCP connection.
    Accepted {
        /// The number that the client gave to the port.
        id: u16,
        /// The TCP client.
        peer: SocketAddr,
    },
    /// Asks for an answer when all connections of [`Request::Connect`] have ended.
    Drain,
}

/// The codes of `docs/forward.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The target is allowed or connected, the port is open, or all connections have ended in order.
    Ready = 0,
    /// The target or port is not in `--allow`.
    NotAllowed = 1,
    /// The host of the target refused the connection.
    Refused = 2,
    /// The target cannot be reached, or its name cannot be resolved.
    Unreachable = 3,
    /// The request has an unknown version or kind.
    NotUnderstood = 4,
    /// The port cannot be opened.
    NotListening = 5,
    /// A TCP connection was reset, so its target may lack bytes.
    Reset = 6,
    /// The port is in use, and may become free.
    InUse = 7,
}

/// What the other end says to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The received code. A code that is not in [`Code`] is a failure of unknown kind.
    pub code: u8,
    /// The error text of the answering system, or the open address after LISTEN; at most 255 bytes.
    pub detail: String,
}

impl Answer {
    /// An answer with a text, of which at most 255 bytes are kept.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        let fits = (0..=detail.len().min(usize::from(u8::MAX))).rev().find(|&end| detail.is_char_boundary(end));
        detail.truncate(fits.unwrap_or(0));
        Self { code: code as u8, detail }
    }

    /// Whether it is [`Code::Ready`].
    pub fn is_ready(&self) -> bool {
        self.is(Code::Ready)
    }

    /// False for every unknown code.
    pub fn is(&self, code: Code) -> bool {
        self.code == code as u8
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            0 => f.write_str("ready"),
            1 if self.detail.is_empty() => {
                f.write_str("not allowed at the far side: `tidewire serve` must be started with --allow for it")
            }
            1 => f.write_str("not allowed at the far side"),
            2 => f.write_str("refused by the target"),
            3 => f.write_str("the far side cannot reach it"),
            4 => f.write_str("the far side is of another version"),
            5 => f.write_str("the far side cannot open the port"),
            6 => f.write_str("reset by the target, which may lack bytes"),
            7 => f.write_str("the port is in use at the far side"),
            other => write!(f, "refused with the unknown code {other}"),
        }?;
        match self.detail.as_str() {
            "" => Ok(()),
            detail => write!(f, " ({detail})"),
        }
    }
}

impl std::error::Error for Answer {}

/// Writes a request.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_request(to: &mut (impl AsyncWrite + Unpin), request: &Request) -> io::Result<()> {
    let (kind, port, host, id) = match request {
        Request::Check(target) => (CHECK, target.port(), target.host().to_owned(), None),
        Request::Connect(target) => (CONNECT, target.port(), target.host().to_owned(), None),
        Request::Listen { id, address } => (LISTEN, address.port(), address.ip().to_string(), Some(*id)),
        Request::Accepted { id, peer } => (ACCEPTED, peer.port(), peer.ip().to_string(), Some(*id)),
        Request::Drain => (DRAIN, 0, String::new(), None),
    };
    // A host is at most MAX_HOST bytes.
    let mut body = vec![kind];
    body.extend_from_slice(&port.to_be_bytes());
    body.push(host.len() as u8);
    body.extend_from_slice(host.as_bytes());
    body.extend(id.into_iter().flat_map(u16::to_be_bytes));
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&body);
    to.write_all(&bytes).await
}

/// Reads a request. The outer error is that of the stream, the inner one is the answer to send.
///
/// # Errors
/// Fails if the stream fails or ends.
pub async fn read_request(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<Request, Answer>> {
    let not_understood = |why: &str| Ok(Err(Answer::new(Code::NotUnderstood, why)));
    let mut magic = [0; MAGIC.len() + 1];
    from.read_exact(&mut magic).await?;
    if !magic.starts_with(MAGIC) {
        return not_understood("this is tidewire serve: connect with tidewire forward");
    }
    if magic.last() != Some(&VERSION) {
        return not_understood("version 1 is spoken here");
    }
    let length = usize::from(from.read_u16().await?);
    let mut body = [0; MAX_BODY];
    let Some(body) = body.get_mut(..length) else { return not_understood("the request is too long") };
    from.read_exact(body).await?;
    Ok(parse(body).ok_or_else(|| Answer::new(Code::NotUnderstood, "the request is malformed")))
}

/// Bytes after the fields of a kind belong to later versions.
fn parse(body: &[u8]) -> Option<Request> {
    let (&[kind, high, low, length], rest) = body.split_first_chunk()?;
    let (host, rest) = rest.split_at_checked(usize::from(length))?;
    let (host, port) = (std::str::from_utf8(host).ok()?, u16::from_be_bytes([high, low]));
    let target = || Target::new(host, port).ok();
    let address = || Some(SocketAddr::new(host.parse().ok()?, port));
    let id = || rest.first_chunk().map(|id| u16::from_be_bytes(*id));
    match kind {
        CHECK => target().map(Request::Check),
        CONNECT => target().map(Request::Connect),
        LISTEN => Some(Request::Listen { id: id()?, address: address()? }),
        ACCEPTED => Some(Request::Accepted { id: id()?, peer: address()? }),
        DRAIN => Some(Request::Drain),
        _ => None,
    }
}

/// Writes an answer.
///
/// # Errors
/// Fails if the stream fails.
pub async fn write_answer(to: &mut (impl AsyncWrite + Unpin), answer: &Answer) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + 3 + answer.detail.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[VERSION, answer.code, answer.detail.len() as u8]);
    bytes.extend_from_slice(answer.detail.as_bytes());
    to.write_all(&bytes).await
}

/// Reads an answer.
///
/// # Errors
/// Fails if the stream fails or ends; [`io::ErrorKind::InvalidData`] if the peer is no `tidewire serve` of
/// this version.
pub async fn read_answer(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let mut head = [0; MAGIC.len() + 3];
    from.read_exact(&mut head).await?;
    let (magic, &[version, code, length]) = head.split_at(MAGIC.len()) else { unreachable!("three bytes are left") };
    if magic != MAGIC || version != VERSION {
        let other = "the far side does not forward: it must run `tidewire serve` of this version";
        return Err(io::Error::new(io::ErrorKind::InvalidData, other));
    }
    let mut detail = [0; u8::MAX as usize];
    let detail = &mut detail[..usize::from(length)];
    from.read_exact(detail).await?;
    Ok(Answer { code, detail: String::from_utf8_lossy(detail).into_owned() })
}

const _: () = assert!(FIXED + MAX_HOST <= MAX_BODY && MAX_HOST <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn read(mut bytes: &[u8]) -> (io::Result<Result<Request, Answer>>, usize) {
        let read = run(read_request(&mut bytes));
        (read, bytes.len())
    }

    #[test]
    fn what_is_written_is_read_and_nothing_behind_it() {
        let target = |text: &str| text.parse::<Target>().unwrap();
        let long = Target::new(&"a".repeat(MAX_HOST), 65_535).unwrap();
        let (listen, peer) = ("0.0.0.0:0".parse().unwrap(), "[2001:db8::1]:65535".parse().unwrap());
        for request in [
            Request::Check(target("[::1]:22")),
            Request::Connect(long),
            Request::Listen { id: 0x0102, address: listen },
            Request::Accepted { id: 3, peer },
            Request::Drain,
        ] {
            let mut bytes = Vec::new();
            run(write_request(&mut bytes, &request)).unwrap();
            bytes.extend_from_slice(b"GET /");
            let (read, left) = read(&bytes);
            assert_eq!((read.unwrap().unwrap(), left), (request, 5));
        }
        let answer = Answer::new(Code::Refused, "ü".repeat(200));
        assert_eq!(answer.detail.len(), 254);
        let mut bytes = Vec::new();
        run(write_answer(&mut bytes, &answer)).unwrap();
        assert_eq!(run(read_answer(&mut &bytes[..])).unwrap(), answer);
    }

    #[test]
    fn what_is_not_a_request_gets_an_answer_that_says_so() {
        for (bytes, says) in [
            (&b"TWFILES\x01\0\0"[..], "tidewire forward"),
            (b"TWFORWD\x02\0\0", "version 1"),
            (b"TWFORWD\x01\xff\xff", "too long"),
            (b"TWFORWD\x01\0\x01\0", "malformed"),
            (b"TWFORWD\x01\0\x04\x09\0\x01\0", "malformed"),
            (b"TWFORWD\x01\0\x05\x02\0\0\x01a", "malformed"),
            (b"TWFORWD\x01\0\x05\x02\0\x50\x01\x00", "malformed"),
            (b"TWFORWD\x01\0\x05\x02\0\x50\x02a", "malformed"),
            (b"TWFORWD\x01\0\x08\x03\0\x50\x03::1\0", "malformed"),
            (b"TWFORWD\x01\0\x09\x04\0\x50\x03web\0\x01", "malformed"),
        ] {
            let answer = read(bytes).0.unwrap().unwrap_err();
            assert!(answer.detail.contains(says) && !answer.is_ready(), "{answer}");
        }
        assert_eq!(
            read(b"TWFORWD\x01\0\x07\x02\0\x50\x01axy").0.unwrap(),
            Ok(Request::Connect("a:80".parse().unwrap()))
        );
        assert!(read(b"TWFORWD\x01\0\x05\x02").0.is_err());
        assert!(run(read_answer(&mut &b"TWFILES\x01\x80\0\0\0"[..])).unwrap_err().to_string().contains("serve"));
    }
}
