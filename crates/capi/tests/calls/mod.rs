//! The functions of the C API with arguments of Rust, and a pair of sockets over loopback.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::{CStr, CString, c_int};

use tidewire_capi::*;

/// Nothing here takes a second; only a fault takes as long as this.
pub const FAULT_MS: c_int = 60_000;

pub fn set(handle: Handle, name: &str, value: &str) -> c_int {
    let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
    // SAFETY: both texts end with NUL and live until the call ends.
    unsafe { tw_setsockopt(handle, name.as_ptr(), value.as_ptr()) }
}

pub fn bind(handle: Handle, address: &str) -> c_int {
    let address = CString::new(address).unwrap();
    // SAFETY: the text ends with NUL and lives until the call ends.
    unsafe { tw_bind(handle, address.as_ptr()) }
}

pub fn connect(handle: Handle, link: &str) -> c_int {
    let link = CString::new(link).unwrap();
    // SAFETY: the text ends with NUL and lives until the call ends.
    unsafe { tw_connect(handle, link.as_ptr()) }
}

/// The link of a listener, or the code.
pub fn link(handle: Handle, host: Option<&str>) -> Result<String, i64> {
    let mut buffer = [0u8; TW_LINK_SIZE];
    let host = host.map(|host| CString::new(host).unwrap());
    let host = host.as_ref().map_or(std::ptr::null(), |host| host.as_ptr());
    // SAFETY: the text ends with NUL or is NULL, and the buffer has the size that is said.
    let length = unsafe { tw_link(handle, host, buffer.as_mut_ptr().cast(), buffer.len()) };
    let length = usize::try_from(length).map_err(|_| length)?;
    assert_eq!(buffer[length], 0);
    Ok(String::from_utf8(buffer[..length].into()).unwrap())
}

pub fn send(handle: Handle, data: &[u8]) -> i64 {
    // SAFETY: the slice has as many bytes as is said.
    unsafe { tw_send(handle, data.as_ptr().cast(), data.len()) }
}

pub fn receive(handle: Handle, buffer: &mut [u8]) -> i64 {
    // SAFETY: the slice has as many bytes as is said.
    unsafe { tw_recv(handle, buffer.as_mut_ptr().cast(), buffer.len()) }
}

pub fn poll(entries: &mut [PollEntry], timeout_ms: c_int) -> c_int {
    // SAFETY: the slice has as many entries as is said.
    unsafe { tw_poll(entries.as_mut_ptr(), entries.len(), timeout_ms) }
}

pub fn entry(handle: Handle, events: i16) -> PollEntry {
    PollEntry { handle, events, revents: 77 }
}

/// The text of the last failure of this thread.
pub fn last_error() -> String {
    // SAFETY: the text is valid until the next failure of this thread.
    unsafe { CStr::from_ptr(tw_last_error()) }.to_str().unwrap().to_owned()
}

/// A listener on loopback and its link.
pub fn listener() -> (Handle, String) {
    let listener = tw_socket();
    assert_eq!(bind(listener, "127.0.0.1:0"), 0);
    assert_eq!(tw_listen(listener, 16), 0, "{}", last_error());
    (listener, link(listener, None).unwrap())
}

/// A connected socket, the socket that was accepted for it, and the listener. One byte went from the first to
/// the second.
pub fn pair() -> (Handle, Handle, Handle) {
    let (listener, link) = listener();
    let client = tw_socket();
    assert_eq!(connect(client, &link), 0, "{}", last_error());
    assert_eq!(send(client, b"!"), 1);
    let server = tw_accept(listener);
    assert!(server > 0, "{}", last_error());
    assert_eq!(receive(server, &mut [0]), 1);
    (client, server, listener)
}
