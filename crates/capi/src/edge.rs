//! The functions that C programs call.
//!
//! Each runs inside [`guard`], which catches panics, stores the text of a failure and returns its code. The
//! comments here become those of the header. Invariant: a pointer is used only after it was found not to be
//! NULL, and only for as many bytes as the caller says; `docs/c-api.md` asks the caller for the rest.
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header; docs/c-api.md has the contract")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::code::*;
use crate::connecting;
use crate::listener;
use crate::polling::{self, PollEntry, TW_POLLIN, TW_POLLOUT};
use crate::runtime::{check_process, wait_for_closing};
use crate::settings;
use crate::signal::lock;
use crate::socket::{Socket, State, wait};
use crate::table::TABLE;

/// Names a socket. A number above zero; a negative number is an error code. No number is used twice.
pub type Handle = i64;

/// For `tw_shutdown`: read no more.
pub const TW_SHUT_RD: c_int = 0;
/// For `tw_shutdown`: end what is sent. The peer reads the end of the stream.
pub const TW_SHUT_WR: c_int = 1;
/// For `tw_shutdown`: both.
pub const TW_SHUT_RDWR: c_int = 2;
/// A buffer of so many bytes has room for every link of `tw_link`.
pub const TW_LINK_SIZE: usize = 512;

/// Runs a function of the edge. `T` is the type of its value, in which codes fit.
fn guard<T: From<c_int>>(function: impl FnOnce() -> Outcome<T>) -> T {
    let result = catch_unwind(AssertUnwindSafe(|| {
        check_process()?;
        function()
    }));
    let failure = match result {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().copied();
            let words = words.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            Failure::new(TW_EPANIC, format_args!("a bug in the library, please report it: {words}"))
        }
    };
    // Dropping a panic's payload, or storing a text, may only panic by another bug.
    catch_unwind(AssertUnwindSafe(|| T::from(failure.tell()))).unwrap_or_else(|_| T::from(TW_EPANIC))
}

/// Makes a socket and returns its handle. Close it with `tw_close`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_socket() -> Handle {
    guard(|| TABLE.insert(Arc::new(Socket::new())))
}

/// Sets an option. Name and value are texts, as in ("latency", "80ms"); docs/c-api.md lists them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_setsockopt(handle: Handle, name: *const c_char, value: *const c_char) -> c_int {
    guard(|| {
        let socket = TABLE.find(handle)?;
        // SAFETY: the caller passes texts that end with NUL, or NULL.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        settings::set(&socket, name, value).map(|()| 0)
    })
}

/// Chooses the local address, as in "0.0.0.0:7700". An address that is in use is found by `tw_listen` or
/// `tw_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_bind(handle: Handle, address: *const c_char) -> c_int {
    guard(|| {
        let socket = TABLE.find(handle)?;
        // SAFETY: the caller passes a text that ends with NUL, or NULL.
        let address = unsafe { text(address, "address")? };
        let parsed = address.parse().map_err(|_| {
            let wanted = "write IP:PORT, as in 0.0.0.0:7700 or [::]:7700; port 0 is any";
            Failure::new(TW_EINVAL, format_args!("\"{address}\" is not an address: {wanted}"))
        })?;
        match &mut *lock(&socket.state) {
            State::New(settings) => settings.address = Some(parsed),
            _ => return Err(Failure::new(TW_EISCONN, "call tw_bind before tw_listen or tw_connect")),
        }
        Ok(0)
    })
}

/// Listens. At most `backlog` streams, 1 to 4096, wait for `tw_accept`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_listen(handle: Handle, backlog: c_int) -> c_int {
    guard(|| listener::listen(&*TABLE.find(handle)?, backlog).map(|()| 0))
}

/// Writes the link of a listener, which the other side gives to `tw_connect`, and its NUL into `buffer`.
/// Returns its length without the NUL. `host` is how others reach this machine; NULL is the bound address.
/// The link has the secret in it. `TW_LINK_SIZE` bytes are always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_link(handle: Handle, host: *const c_char, buffer: *mut c_char, size: usize) -> i64 {
    guard(|| {
        let listener = TABLE.find(handle)?.listener()?;
        // SAFETY: the caller passes a text that ends with NUL, or NULL.
        let host = if host.is_null() { None } else { Some(unsafe { text(host, "host")? }) };
        let link = listener.link(host)?;
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        if size <= link.len() {
            let wanted = link.len() + 1;
            return Err(Failure::new(TW_ERANGE, format_args!("size is {size}: the link needs {wanted} bytes")));
        }
        // SAFETY: `buffer` is not NULL and has `size` bytes, more than the link.
        let room = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), link.len() + 1) };
        room[..link.len()].copy_from_slice(link.as_bytes());
        room[link.len()] = 0;
        Ok(link.len() as i64)
    })
}

/// Takes the next stream of a peer and returns its handle. A stream is there when its first bytes are.
#[unsafe(no_mangle)]
pub extern "C" fn tw_accept(handle: Handle) -> Handle {
    guard(|| {
        let socket = TABLE.find(handle)?;
        let modes = *lock(&socket.modes);
        let taken =
            wait(&socket.input.signal, modes.is_blocking, modes.receive_deadline(), || match socket.listener() {
                Ok(listener) => listener.take(),
                Err(failure) => std::task::Poll::Ready(Err(failure)),
            });
        socket.show_input();
        let (peer, stream) = taken?;
        TABLE.insert(Arc::new(Socket::open(peer, stream, modes)))
    })
}

/// Connects to the listener of a link, tidewire://HOST:PORT/#SECRET, and opens a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_connect(handle: Handle, link: *const c_char) -> c_int {
    guard(|| {
        let socket = TABLE.find(handle)?;
        // SAFETY: the caller passes a text that ends with NUL, or NULL.
        let link = unsafe { text(link, "link")? };
        connecting::connect(&socket, link).map(|()| 0)
    })
}

/// Opens one more stream in the connection of a socket and returns its handle.
#[unsafe(no_mangle)]
pub extern "C" fn tw_open(handle: Handle) -> Handle {
    guard(|| TABLE.insert(Arc::new(TABLE.find(handle)?.open_stream()?)))
}

/// Sends bytes and returns how many were taken: all, if the socket blocks and nothing fails. A byte that was
/// taken has not arrived yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send(handle: Handle, data: *const c_void, size: usize) -> i64 {
    guard(|| {
        let socket = TABLE.find(handle)?;
        check_memory(data, size, "data")?;
        // SAFETY: `data` is not NULL and has `size` bytes, at most `isize::MAX`.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
        socket.send(data).map(|sent| sent as i64)
    })
}

/// Receives at most `size` bytes, at least 1, and returns how many. 0 is the end of the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_recv(handle: Handle, buffer: *mut c_void, size: usize) -> i64 {
    guard(|| {
        let socket = TABLE.find(handle)?;
        check_memory(buffer, size, "buffer")?;
        if size == 0 {
            return Err(Failure::new(TW_EINVAL, "size is 0, and 0 received bytes mean the end: give room for 1"));
        }
        // SAFETY: `buffer` is not NULL and has `size` bytes, at most `isize::MAX`. They come from outside of
        // Rust, and are only written here.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
        socket.receive(buffer).map(|received| received as i64)
    })
}

/// Ends one direction of a stream or both: `TW_SHUT_RD`, `TW_SHUT_WR`, `TW_SHUT_RDWR`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_shutdown(handle: Handle, how: c_int) -> c_int {
    guard(|| {
        let socket = TABLE.find(handle)?;
        if !(TW_SHUT_RD..=TW_SHUT_RDWR).contains(&how) {
            return Err(Failure::new(
                TW_EINVAL,
                format_args!("how is {how}: give TW_SHUT_RD, TW_SHUT_WR or TW_SHUT_RDWR"),
            ));
        }
        if how != TW_SHUT_RD {
            socket.end_writing()?;
        }
        if how != TW_SHUT_WR {
            socket.end_reading()?;
        }
        Ok(0)
    })
}

/// Closes a handle. If the socket blocks, waits until the peer has what was sent, at most the option
/// "linger". The handle is closed even if this fails with `TW_ETIMEDOUT`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_close(handle: Handle) -> c_int {
    guard(|| connecting::close(&*TABLE.remove(handle)?).map(|()| 0))
}

/// Waits until one of `count` entries is ready, or `timeout_ms` have passed; negative is for ever. Returns
/// how many are ready. If any handle is wrong, fails and changes no entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_poll(entries: *mut PollEntry, count: usize, timeout_ms: c_int) -> c_int {
    guard(|| {
        if count > MOST_ENTRIES {
            return Err(Failure::new(TW_EINVAL, format_args!("count is {count}: give at most {MOST_ENTRIES}")));
        }
        let mut none = [];
        let entries = match count {
            0 => &mut none[..],
            _ if entries.is_null() => return Err(null("entries")),
            // SAFETY: `entries` is not NULL and has `count` entries, few enough for a slice.
            _ => unsafe { std::slice::from_raw_parts_mut(entries, count) },
        };
        polling::poll(entries, timeout_ms).map(|ready| ready as c_int)
    })
}

/// Returns a descriptor that is readable while `tw_poll` would report `event`, which is `TW_POLLIN` or
/// `TW_POLLOUT`. Do not read, write or close it: it belongs to the handle.
#[unsafe(no_mangle)]
pub extern "C" fn tw_fd(handle: Handle, event: c_int) -> c_int {
    guard(|| {
        let socket = TABLE.find(handle)?;
        let (signal, event) = match event {
            event if event == c_int::from(TW_POLLIN) => (&socket.input.signal, TW_POLLIN),
            event if event == c_int::from(TW_POLLOUT) => (&socket.output.signal, TW_POLLOUT),
            _ => return Err(Failure::new(TW_EINVAL, format_args!("event is {event}: give TW_POLLIN or TW_POLLOUT"))),
        };
        polling::check(&socket, event)?;
        let descriptor = signal.descriptor()?;
        if event == TW_POLLIN {
            socket.show_input();
        } else {
            socket.show_output();
        }
        Ok(descriptor)
    })
}

/// The text of the last failure of this thread: what was wrong and what to do. Valid until the next failure
/// in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn tw_last_error() -> *const c_char {
    last()
}

/// A short text for a code. It lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn tw_strerror(code: c_int) -> *const c_char {
    describe(code).as_ptr()
}

/// Closes every handle, and waits until the peers have what was sent, at most `timeout_ms`; negative is as
/// long as the option "linger" of each socket allows. Fails with `TW_ETIMEDOUT` if something is still under
/// way.
#[unsafe(no_mangle)]
pub extern "C" fn tw_cleanup(timeout_ms: c_int) -> c_int {
    guard(|| {
        for handle in TABLE.handles() {
            // Another thread may have closed it.
            let Ok(socket) = TABLE.remove(handle) else { continue };
            lock(&socket.modes).is_blocking = false;
            connecting::close(&socket)?;
        }
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match wait_for_closing(timeout) {
            true => Ok(0),
            false => Err(Failure::new(TW_ETIMEDOUT, "some bytes are still under way: call tw_cleanup again")),
        }
    })
}

/// The version of the library, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Reads a text of the caller.
///
/// # Safety
/// `pointer` is NULL, or points to bytes that end with NUL and stay unchanged for `'a`.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, and the caller keeps the rest of the contract.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|_| Failure::new(TW_EINVAL, format_args!("{name} is not UTF-8")))
}

/// Checks what can be checked of a block of memory.
fn check_memory(pointer: *const c_void, size: usize, name: &str) -> Outcome<()> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if isize::try_from(size).is_err() {
        return Err(Failure::new(TW_EINVAL, format_args!("size is {size}: no memory is so large")));
    }
    Ok(())
}

fn null(name: &str) -> Failure {
    Failure::new(TW_EFAULT, format_args!("{name} is NULL"))
}

/// As many entries as there can be sockets.
const MOST_ENTRIES: usize = 65_536;
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code: c_int = guard(|| panic!("the {} broke", "wheel"));
        let plain: i64 = guard(|| panic!("it broke"));
        std::panic::set_hook(before);
        assert_eq!((code, plain), (TW_EPANIC, i64::from(TW_EPANIC)));
        // SAFETY: the text is valid until the next failure of this thread.
        let said = unsafe { CStr::from_ptr(tw_last_error()) }.to_str().unwrap();
        assert_eq!(said, "a bug in the library, please report it: it broke");
    }

    #[test]
    fn each_thread_has_its_own_last_text() {
        // SAFETY: `last` returns a text that ends with NUL and lives until this thread's next failure.
        let mine = || unsafe { CStr::from_ptr(last()) }.to_owned();
        assert_eq!(Failure::new(TW_EINVAL, "one\0two").tell(), TW_EINVAL);
        assert_eq!(mine().as_c_str(), c"one two");
        std::thread::spawn(move || {
            // SAFETY: as above, in this thread.
            assert_eq!(unsafe { CStr::from_ptr(last()) }, c"");
            Failure::new(TW_EIO, "three").tell();
        })
        .join()
        .unwrap();
        assert_eq!(mine().as_c_str(), c"one two");
    }

    #[test]
    fn the_version_is_that_of_the_package() {
        assert_eq!(VERSION.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
