//! A UDP socket of the system, and the runtime's notices that it can be read or has room again.
//!
//! [`Udp`](super::Udp) makes its system calls through it. On Linux the socket is registered for datagrams
//! alone, and for room only while the socket has none. Linux reports room whenever a datagram has left, so
//! a thread that waits for both is woken once more by each datagram that it sends. Invariant: after a call
//! that found the socket empty or full, none is made before such a notice, unless the caller asks.

use std::io;
use std::task::{Context, Poll, ready};

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use lazy::{Registered, Socket};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use plain::{Registered, Socket};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod lazy {
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{Context, Poll, io, ready};

    /// The socket that calls are made on.
    pub type Socket = std::net::UdpSocket;

    #[expect(deprecated, reason = "unsound for types that change their descriptor; the other form is unsafe")]
    fn register(socket: Socket, interest: Interest) -> io::Result<AsyncFd<Socket>> {
        AsyncFd::with_interest(socket, interest)
    }

    /// The socket; see the module.
    #[derive(Debug)]
    pub struct Registered {
        io: AsyncFd<Socket>,
        /// The same socket, registered for room, while it is full.
        full: Option<AsyncFd<Socket>>,
    }

    impl Registered {
        /// Needs a runtime with I/O enabled, and a socket that does not block.
        pub fn new(socket: Socket) -> io::Result<Self> {
            Ok(Self { io: register(socket, Interest::READABLE)?, full: None })
        }

        /// The socket itself.
        pub fn socket(&self) -> &Socket {
            self.io.get_ref()
        }

        /// Makes a system call that receives, as soon as there may be something to receive, or at once if it
        /// `asks`. `WouldBlock` means that it found the socket empty.
        pub fn poll_receive(
            &self,
            cx: &mut Context<'_>,
            asks: bool,
            receive: impl FnOnce(&Socket) -> io::Result<()>,
        ) -> Poll<io::Result<()>> {
            let mut readable = match self.io.poll_read_ready(cx) {
                Poll::Pending if asks => return Poll::Ready(receive(self.socket())),
                readable => ready!(readable)?,
            };
            let received = readable.try_io(|io| receive(io.get_ref()));
            Poll::Ready(received.unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into())))
        }

        /// Makes a system call that sends, as soon as there may be room.
        pub fn poll_send(
            &mut self,
            cx: &mut Context<'_>,
            mut send: impl FnMut(&Socket) -> io::Result<()>,
        ) -> Poll<io::Result<()>> {
            loop {
                if let Some(full) = &self.full {
                    drop(ready!(full.poll_write_ready(cx))?);
                    self.full = None;
                }
                match send(self.socket()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let same = self.socket().try_clone()?;
                        self.full = Some(register(same, Interest::WRITABLE)?);
                    }
                    sent => return Poll::Ready(sent),
                }
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod plain {
    use tokio::io::Interest;

    use super::{Context, Poll, io, ready};

    /// The socket that calls are made on.
    pub type Socket = tokio::net::UdpSocket;

    /// The socket, always registered for both.
    #[derive(Debug)]
    pub struct Registered(Socket);

    impl Registered {
        /// Needs a runtime with I/O enabled, and a socket that does not block.
        pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
            Socket::from_std(socket).map(Self)
        }

        /// The socket itself.
        pub fn socket(&self) -> &Socket {
            &self.0
        }

        /// Makes a system call that receives, as soon as there may be something to receive, or at once if it
        /// `asks`. `WouldBlock` means that it found the socket empty.
        pub fn poll_receive(
            &self,
            cx: &mut Context<'_>,
            asks: bool,
            receive: impl FnOnce(&Socket) -> io::Result<()>,
        ) -> Poll<io::Result<()>> {
            match self.0.poll_recv_ready(cx) {
                Poll::Pending if asks => return Poll::Ready(receive(&self.0)),
                readable => ready!(readable)?,
            }
            Poll::Ready(self.0.try_io(Interest::READABLE, || receive(&self.0)))
        }

        /// Makes a system call that sends, as soon as there may be room.
        pub fn poll_send(
            &mut self,
            cx: &mut Context<'_>,
            mut send: impl FnMut(&Socket) -> io::Result<()>,
        ) -> Poll<io::Result<()>> {
            loop {
                ready!(self.0.poll_send_ready(cx))?;
                match self.0.try_io(Interest::WRITABLE, || send(&self.0)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    sent => return Poll::Ready(sent),
                }
            }
        }
    }
}
