//! A program for the kernel that chooses the socket of a datagram among those of one address.
//!
//! It reads the connection id of either form and returns the shard that the id names (docs/wire.md section
//! 1.2), which is the place of the socket in its group. A datagram that is too short for an id goes to the
//! first socket. The kernel may have joined datagrams of one sender before: the first then decides for all.

use std::io;

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt};

use super::readiness::Socket;

/// Attaches the program to the group of `socket`, which has so many sockets.
///
/// # Errors
/// Those of the kernel, which has the option since 4.5.
pub(super) fn by_id(socket: &Socket, sockets: u16) -> io::Result<()> {
    let mut program = program(sockets);
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?)
}

/// The program. Its operations are those of Linux's `filter.h`; offsets count from the UDP payload.
fn program(sockets: u16) -> [sock_filter; 7] {
    let op = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    [
        // LD B ABS, AND K, RSH K: 4 for the long form, whose version comes before the id, otherwise 0.
        op(0x30, 0),
        op(0x54, 0x80),
        op(0x74, 5),
        // TAX, LD H IND: the first two bytes of the id.
        op(0x07, 0),
        op(0x48, 1),
        // MOD K, RET A.
        op(0x94, sockets.into()),
        op(0x16, 0),
    ]
}
