//! The header of each forwarded stream, in both directions (`docs/forward.md` section 1): the client's
//! request and the server's answer.
//!
//! A reader allocates nothing for a claimed length, and reads no byte beyond the header, because the
//! following bytes belong to the TCP connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::target::{MAX_HOST, Target};

const MAGIC: &[u8; 7] = b"TWFORWD";
const VERSION: u8 = 1;
/// Longest body of a request: the fields of this version, and as much again for later versions.
const MAX_BODY: usize = 512;
/// Bytes of the fields before the host.
const FIXED: usize = 4;

const CHECK: u8 = 1;
const CONNECT: u8 = 2;

/// A client's request for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks whether a target is allowed.
    Check(Target),
    /// Asks for a TCP connection.
    Connect(Target),
}

/// Codes of a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The target is allowed or connected. The bytes of the TCP connection follow.
    Ready = 0,
    /// The target is not in `--allow`.
    NotAllowed = 1,
    /// The host of the target refused the connection.
    Refused = 2,
    /// The target cannot be reached, or its name cannot be resolved.
    Unreachable = 3,
    /// The request has an unknown version or kind.
    NotUnderstood = 4,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The received code. A code that is not in [`Code`] is a failure of unknown kind.
    pub code: u8,
    /// The error text of the server's system, at most 255 bytes.
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
        self.code == Code::Ready as u8
    }

    /// Whether it says that the target is not in `--allow`.
    pub fn is_not_allowed(&self) -> bool {
        self.code == Code::NotAllowed as u8
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            0 => f.write_str("ready"),
            1 => f.write_str("not allowed at the far side: `tidewire serve` must be started with --allow for it"),
            2 => f.write_str("refused by the target"),
            3 => f.write_str("the far side cannot reach it"),
            4 => f.write_str("the far side is of another version"),
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
    let (kind, target) = match request {
        Request::Check(target) => (CHECK, target),
        Request::Connect(target) => (CONNECT, target),
    };
    let (host, port) = (target.host(), target.port());
    let mut bytes = Vec::with_capacity(MAGIC.len() + 3 + FIXED + host.len());
    bytes.extend_from_slice(MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&((FIXED + host.len()) as u16).to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&port.to_be_bytes());
    // A target's host is at most MAX_HOST bytes.
    bytes.push(host.len() as u8);
    bytes.extend_from_slice(host.as_bytes());
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

/// Bytes after the host belong to later versions.
fn parse(body: &[u8]) -> Option<Request> {
    let (&[kind, high, low, length], rest) = body.split_first_chunk::<FIXED>()?;
    let host = std::str::from_utf8(rest.get(..usize::from(length))?).ok()?;
    let target = || Target::new(host, u16::from_be_bytes([high, low])).ok();
    match kind {
        CHECK => target().map(Request::Check),
        CONNECT => target().map(Request::Connect),
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
        for request in [Request::Check(target("[::1]:22")), Request::Connect(long)] {
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
