//! The near end of SOCKS5 (RFC 1928): reads which target a client asks for, and answers it
//! (`docs/forward.md` section 4).
//!
//! [`crate::acceptor`] calls it for each TCP connection to a port of `-D`. Only CONNECT without
//! authentication is spoken. Invariants: no byte behind the request is read, because the application's bytes
//! follow it. A client that stalls or sends garbage costs at most [`PATIENCE`] and 519 bytes.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::header::{Answer, Code};
use crate::target::Target;

/// Time for a client's whole request. Chosen: clients on the same machine send it at once, and five seconds
/// are enough for one that is swapped out.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
/// Types of addresses (RFC 1928 section 5).
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Replies to a request (RFC 1928 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// The reply that stands for an answer of the far side.
    pub(crate) fn of(answer: &Answer) -> Self {
        const CODES: [(Code, Reply); 4] = [
            (Code::Ready, Reply::Succeeded),
            (Code::NotAllowed, Reply::NotAllowed),
            (Code::Refused, Reply::ConnectionRefused),
            (Code::Unreachable, Reply::HostUnreachable),
        ];
        CODES.iter().find(|(code, _)| answer.is(*code)).map_or(Self::GeneralFailure, |(_, reply)| *reply)
    }
}

/// Reads a client's request. A request that is refused here has been replied to.
///
/// # Errors
/// Fails if the client is late, sends something else than a request, or asks for what is not spoken.
pub(crate) async fn request(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Target> {
    let late = |_| {
        let words = format!("the SOCKS client sent no whole request within {} s", PATIENCE.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, words)
    };
    timeout(PATIENCE, negotiate(client)).await.map_err(late)?
}

/// Sends a reply. The bound address is zero, because the far side does not tell it.
///
/// # Errors
/// Fails if the client is gone.
pub(crate) async fn reply(client: &mut (impl AsyncWrite + Unpin), reply: Reply) -> io::Result<()> {
    client.write_all(&[VERSION, reply as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]).await
}

async fn negotiate(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Target> {
    let [version, count] = read(client).await?;
    is_version(version)?;
    let mut methods = [0; u8::MAX as usize];
    let methods = &mut methods[..usize::from(count)];
    client.read_exact(methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(wrong("the SOCKS client insists on authentication, which is not spoken here"));
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _, kind] = read(client).await?;
    is_version(version)?;
    let host = match kind {
        IPV4 => Ipv4Addr::from(read(client).await?).to_string(),
        IPV6 => Ipv6Addr::from(read(client).await?).to_string(),
        NAME => {
            let [length] = read(client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => {
            reply(client, Reply::AddressTypeNotSupported).await?;
            return Err(wrong(format!("SOCKS has no address type {kind}: 1, 3 and 4 are spoken")));
        }
    };
    let port = u16::from_be_bytes(read(client).await?);
    if command != CONNECT {
        reply(client, Reply::CommandNotSupported).await?;
        return Err(wrong(format!("the SOCKS command {command} is not spoken here, only CONNECT (1)")));
    }
    match Target::new(&host, port) {
        Ok(target) => Ok(target),
        Err(error) => {
            reply(client, Reply::GeneralFailure).await?;
            Err(wrong(error))
        }
    }
}

async fn read<const N: usize>(client: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn is_version(version: u8) -> io::Result<()> {
    match version {
        VERSION => Ok(()),
        4 => Err(wrong("the client speaks SOCKS4: configure it for SOCKS5")),
        other => Err(wrong(format!("this is no SOCKS5 client: it began with the byte {other}"))),
    }
}

fn wrong(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sends `bytes` and an end; the target or error, what was replied, and the bytes that were not read.
    fn ask(bytes: &[u8]) -> (Result<String, String>, Vec<u8>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut ours) = tokio::io::duplex(2_048);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let target = request(&mut ours).await.map(|target| target.to_string()).map_err(|error| error.to_string());
            let mut left = Vec::new();
            ours.read_to_end(&mut left).await.unwrap();
            drop(ours);
            let mut replied = Vec::new();
            client.read_to_end(&mut replied).await.unwrap();
            (target, replied, left)
        })
    }

    #[test]
    fn targets_are_read_and_nothing_behind_them() {
        for (request, target) in [
            (&b"\x05\x01\0\x01\x7f\0\0\x01\x01\xbb"[..], "127.0.0.1:443"),
            (b"\x05\x01\0\x03\x0bWeb.exAmple\0\x50", "web.example:80"),
            (b"\x05\x01\0\x03\x03::1\0\x50", "[::1]:80"),
            (b"\x05\x01\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50", "[2001:db8::1]:80"),
        ] {
            let bytes = [b"\x05\x02\x02\0", request, b"GET /"].concat();
            assert_eq!(ask(&bytes), (Ok(target.to_owned()), b"\x05\0".to_vec(), b"GET /".to_vec()));
        }
    }

    #[test]
    fn what_is_not_spoken_is_replied_to_and_named() {
        let refused = |reply| [b"\x05\0\x05", &[reply][..], b"\0\x01\0\0\0\0\0\0"].concat();
        for (bytes, replied, says) in [
            (&b"\x05\x01\x02"[..], b"\x05\xff".to_vec(), "authentication"),
            (b"\x05\0", b"\x05\xff".to_vec(), "authentication"),
            (b"\x04\x01\0\x50\x7f\0\0\x01\0", vec![], "SOCKS5"),
            (b"GET / HTTP/1.1\r\n\r\n", vec![], "byte 71"),
            (b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01\0\x50", refused(7), "command 2"),
            (b"\x05\x01\0\x05\x03\0\x01\x7f\0\0\x01\0\x50", refused(7), "command 3"),
            (b"\x05\x01\0\x05\x01\0\x02\x7f\0\0\x01\0\x50", refused(8), "address type 2"),
            (b"\x05\x01\0\x05\x01\0\x01\x7f\0\0\x01\0\0", refused(1), "127.0.0.1:0"),
            (b"\x05\x01\0\x05\x01\0\x03\0\0\x50", refused(1), "HOST:PORT"),
            (b"\x05\x01\0\x05\x01\0\x03\x03a b\0\x50", refused(1), "a b:80"),
            (b"\x05\x01\0\x05\x01\0\x03\x01\xff\0\x50", refused(1), "HOST:PORT"),
            (b"\x05\x01\0\x04\x01\0\x01\x7f\0\0\x01\0\x50", b"\x05\0".to_vec(), "SOCKS5"),
            (b"\x05\x02\0", vec![], "eof"),
            (b"\x05\x01\0\x05\x01\0\x03\x05ab", b"\x05\0".to_vec(), "eof"),
        ] {
            let (target, got, _) = ask(bytes);
            let error = target.unwrap_err();
            assert!(error.contains(says) && got == replied, "{bytes:?}: {error}, {got:?}");
        }
    }

    #[test]
    fn answers_have_replies() {
        for (code, reply) in [(0, 0), (1, 2), (2, 5), (3, 4), (4, 1), (99, 1)] {
            assert_eq!(Reply::of(&Answer { code, detail: String::new() }) as u8, reply);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(greeting in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let bytes = if greeting { [b"\x05\x01\0\x05\x01\0\x03", &bytes[..]].concat() } else { bytes };
            let (target, _, left) = ask(&bytes);
            prop_assert!(bytes.len() - left.len() <= 519);
            prop_assert!(target.is_err() || target.unwrap().parse::<Target>().is_ok());
        }
    }
}
