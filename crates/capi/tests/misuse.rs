//! What a program does wrong: every function with wrong handles, NULL and wrong values returns a code, says
//! what is wrong, and changes nothing.

mod calls;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use calls::*;
use tidewire_capi::*;

/// Every function with a handle, with arguments that would be right.
fn every_function(handle: Handle) -> [(&'static str, i64); 12] {
    let mut byte = [0u8; 1];
    let mut text = [0 as c_char; TW_LINK_SIZE];
    let mut entries = [entry(handle, TW_POLLIN)];
    // SAFETY: the buffer has the size that is said.
    let linked = unsafe { tw_link(handle, null(), text.as_mut_ptr(), text.len()) };
    let polled = poll(&mut entries, 0);
    assert_eq!(entries[0].revents, 77, "a refused tw_poll changed an entry");
    [
        ("setsockopt", set(handle, "nonblocking", "off").into()),
        ("bind", bind(handle, "127.0.0.1:0").into()),
        ("listen", tw_listen(handle, 1).into()),
        ("link", linked),
        ("accept", tw_accept(handle)),
        ("connect", connect(handle, &wrong_link()).into()),
        ("open", tw_open(handle)),
        ("send", send(handle, b"x")),
        ("recv", receive(handle, &mut byte)),
        ("shutdown", tw_shutdown(handle, TW_SHUT_WR).into()),
        ("poll", polled.into()),
        ("fd", tw_fd(handle, TW_POLLIN.into()).into()),
    ]
}

/// A link that parses and that nobody answers.
fn wrong_link() -> String {
    format!("tidewire://127.0.0.1:9/#{}", *tidewire::Secret::new([7; 32]).reveal())
}

fn code(code: c_int) -> i64 {
    code.into()
}

#[test]
fn closed_and_foreign_handles_are_found_by_every_function() {
    let closed = tw_socket();
    assert_eq!(tw_close(closed), 0);
    // Its place is used again, with another number.
    let next = tw_socket();
    assert_ne!(next, closed);
    for handle in [closed, 0, -1, 1, i64::MAX, i64::MIN, next ^ (1 << 40), 1 << 32 | 0xffff] {
        for (name, result) in every_function(handle) {
            assert_eq!(result, code(TW_EBADF), "{name} of {handle}");
            assert!(last_error().contains("is not an open handle"), "{name} of {handle}: {}", last_error());
        }
        assert_eq!(tw_close(handle), TW_EBADF);
    }
    assert_eq!(tw_close(next), 0);
}

#[test]
fn a_new_socket_refuses_what_it_cannot_do() {
    let new = tw_socket();
    let mut byte = [0u8; 1];
    assert_eq!(send(new, b"x"), code(TW_ENOTCONN));
    assert_eq!(receive(new, &mut byte), code(TW_ENOTCONN));
    assert_eq!(tw_shutdown(new, TW_SHUT_WR), TW_ENOTCONN);
    assert_eq!(tw_open(new), code(TW_ENOTCONN));
    assert_eq!(tw_accept(new), code(TW_EOPNOTSUPP));
    assert_eq!(link(new, None), Err(code(TW_EOPNOTSUPP)));
    assert_eq!(tw_fd(new, TW_POLLIN.into()), TW_ENOTCONN);
    assert_eq!(poll(&mut [entry(new, TW_POLLIN)], 0), TW_ENOTCONN);
    assert!(last_error().starts_with("entry 0: "), "{}", last_error());
    // None of it changed the socket.
    assert_eq!((bind(new, "127.0.0.1:0"), tw_listen(new, 1)), (0, 0));
    assert_eq!(tw_close(new), 0);
}

#[test]
fn a_listener_and_a_stream_refuse_what_the_other_does() {
    let (client, server, listener) = pair();
    let mut byte = [0u8; 1];
    assert_eq!(send(listener, b"x"), code(TW_EOPNOTSUPP));
    assert_eq!(receive(listener, &mut byte), code(TW_EOPNOTSUPP));
    assert_eq!(tw_shutdown(listener, TW_SHUT_RDWR), TW_EOPNOTSUPP);
    assert_eq!(tw_open(listener), code(TW_EOPNOTSUPP));
    assert_eq!(connect(listener, &wrong_link()), TW_EISCONN);
    assert_eq!(tw_listen(listener, 1), TW_EISCONN);
    assert_eq!(tw_fd(listener, TW_POLLOUT.into()), TW_EOPNOTSUPP);
    assert_eq!(poll(&mut [entry(client, TW_POLLIN), entry(listener, TW_POLLOUT)], 0), TW_EOPNOTSUPP);
    assert!(last_error().starts_with("entry 1: "), "{}", last_error());
    for stream in [client, server] {
        assert_eq!(tw_accept(stream), code(TW_EOPNOTSUPP));
        assert_eq!(link(stream, None), Err(code(TW_EOPNOTSUPP)));
        assert_eq!(connect(stream, &wrong_link()), TW_EISCONN);
        assert_eq!(tw_listen(stream, 1), TW_EISCONN);
        assert_eq!(bind(stream, "127.0.0.1:0"), TW_EISCONN);
        assert_eq!(set(stream, "latency", "80ms"), TW_EISCONN);
    }
    // All of them still do their own.
    assert_eq!((send(server, b"y"), receive(client, &mut byte), byte), (1, 1, *b"y"));
    let more = tw_open(client);
    assert_eq!(send(more, b"z"), 1);
    let accepted = tw_accept(listener);
    assert_eq!((receive(accepted, &mut byte), byte), (1, *b"z"));
    for handle in [more, accepted, client, server, listener] {
        assert_eq!(tw_close(handle), 0, "{}", last_error());
    }
}

#[test]
fn null_is_an_error_and_changes_nothing() {
    let (client, server, listener) = pair();
    let new = tw_socket();
    let name = c"latency".as_ptr();
    // SAFETY: NULL is what the functions check for; the other text ends with NUL.
    unsafe {
        assert_eq!(tw_setsockopt(new, null(), name), TW_EFAULT);
        assert_eq!(tw_setsockopt(new, name, null()), TW_EFAULT);
        assert_eq!(tw_bind(new, null()), TW_EFAULT);
        assert_eq!(tw_connect(new, null()), TW_EFAULT);
        assert_eq!(tw_link(listener, null(), null_mut(), 100), code(TW_EFAULT));
        for size in [0, 1, 100, usize::MAX] {
            assert_eq!(tw_send(client, null(), size), code(TW_EFAULT));
            assert_eq!(tw_recv(client, null_mut(), size), code(TW_EFAULT));
        }
        assert_eq!(tw_poll(null_mut(), 1, 0), TW_EFAULT);
        assert_eq!(tw_poll(null_mut(), 0, 0), 0);
    }
    assert_eq!(last_error(), "entries is NULL");
    let mut byte = [0u8; 1];
    assert_eq!((send(client, b"x"), receive(server, &mut byte), byte), (1, 1, *b"x"));
    for handle in [new, client, server, listener] {
        assert_eq!(tw_close(handle), 0);
    }
}

#[test]
fn lengths_of_zero_and_without_end_are_understood() {
    let (client, server, listener) = pair();
    let mut byte = [0u8; 1];
    assert_eq!(send(client, b""), 0);
    assert_eq!(receive(client, &mut []), code(TW_EINVAL));
    let size = usize::MAX / 2 + 1;
    let pointer: *mut c_void = byte.as_mut_ptr().cast();
    // SAFETY: sizes that no memory has are refused before the pointer is used.
    unsafe {
        assert_eq!(tw_send(client, pointer, size), code(TW_EINVAL));
        assert_eq!(tw_recv(client, pointer, usize::MAX), code(TW_EINVAL));
        assert_eq!(tw_poll(&mut entry(client, TW_POLLIN), 65_537, 0), TW_EINVAL);
        let mut text = [1 as c_char; 4];
        assert_eq!(tw_link(listener, null(), text.as_mut_ptr(), text.len()), code(TW_ERANGE));
        assert_eq!(text, [1; 4], "a link that does not fit was written in part");
    }
    assert!(last_error().starts_with("size is 4: the link needs "), "{}", last_error());
    for how in [-1, 3] {
        assert_eq!(tw_shutdown(client, how), TW_EINVAL);
    }
    for event in [0, 2, 5, 8, -1] {
        assert_eq!(tw_fd(client, event), TW_EINVAL);
    }
    assert_eq!(poll(&mut [entry(client, TW_POLLERR)], 0), TW_EINVAL);
    assert_eq!((send(client, b"x"), receive(server, &mut byte), byte), (1, 1, *b"x"));
    for handle in [client, server, listener] {
        assert_eq!(tw_close(handle), 0);
    }
}

#[test]
fn wrong_options_say_what_to_write_and_change_nothing() {
    let new = tw_socket();
    for (name, value, wanted, words) in [
        ("latnecy", "80ms", TW_ENOPROTOOPT, "unknown option \"latnecy\""),
        ("", "", TW_ENOPROTOOPT, "unknown option \"\""),
        ("latency", "80", TW_EINVAL, "latency: \"80\" has no unit"),
        ("latency", "1us", TW_EINVAL, "latency: less than 1 ms"),
        ("profile", "steram", TW_EINVAL, "profile: "),
        ("code", "xor", TW_EINVAL, "code: unknown code"),
        ("redundancy", "every", TW_EINVAL, "redundancy: "),
        ("rate_control", "bbq", TW_EINVAL, "rate_control: "),
        ("rate_control", "bbr", TW_EINVAL, "rate_control: rate control \"bbr\" was replaced by \"share\""),
        ("max_rate", "fast", TW_EINVAL, "max_rate: \"fast\" is not a rate"),
        ("max_rate", "1bit", TW_EINVAL, "max_rate: max_rate must be at least 8000"),
        ("max_overhead", "101%", TW_EINVAL, "max_overhead: "),
        ("secret", "tws1abc", TW_EINVAL, "secret: "),
        ("private_key", "twp1", TW_EINVAL, "private_key: "),
        ("authorized_keys", "twp1 twp1", TW_EINVAL, "authorized_keys: "),
        ("connect_timeout", "1ms", TW_EINVAL, "connect_timeout: handshake_timeout must be at least 100 ms"),
        ("idle_timeout", "off", TW_EINVAL, "idle_timeout: "),
        ("keep_alive", "1ms", TW_EINVAL, "keep_alive: "),
        ("nonblocking", "yes", TW_EINVAL, "nonblocking is \"yes\": write on or off"),
        ("receive_timeout", "soon", TW_EINVAL, "receive_timeout: "),
        ("linger", "off", TW_EINVAL, "linger: "),
    ] {
        assert_eq!(set(new, name, value), wanted, "{name}={value}");
        assert!(last_error().starts_with(words), "{name}={value}: {}", last_error());
    }
    // SAFETY: both texts end with NUL.
    assert_eq!(unsafe { tw_setsockopt(new, c"secret".as_ptr(), c"\xff".as_ptr()) }, TW_EINVAL);
    assert_eq!(last_error(), "value is not UTF-8");
    // A refused secret was not kept.
    assert_eq!((bind(new, "127.0.0.1:0"), tw_listen(new, 1)), (0, 0));
    assert_eq!(tw_close(new), 0);
}

#[test]
fn right_options_are_taken() {
    let new = tw_socket();
    let key = tidewire::PrivateKey::new([3; 32]);
    let (secret, public) = (tidewire::Secret::new([7; 32]).reveal().to_string(), key.public().to_string());
    for (name, value) in [
        ("profile", "arq"),
        ("code", "rlc"),
        ("redundancy", "every:5,resend"),
        ("rate_control", "cubic"),
        ("latency", "80ms"),
        ("max_rate", "20mbit"),
        ("max_overhead", "25%"),
        ("authorized_keys", &format!("{public}, {public}")),
        ("secret", &secret),
        ("connect_timeout", "2s"),
        ("idle_timeout", "20s"),
        ("keep_alive", "off"),
        ("nonblocking", "on"),
        ("receive_timeout", "1s"),
        ("send_timeout", "off"),
        ("linger", "0s"),
    ] {
        assert_eq!(set(new, name, value), 0, "{name}={value}: {}", last_error());
    }
    assert_eq!((bind(new, "127.0.0.1:0"), tw_listen(new, 4096)), (0, 0), "{}", last_error());
    assert!(link(new, Some("example.org")).unwrap().ends_with(&format!("/#{secret}")));
    assert_eq!(link(new, Some("a/b")), Err(code(TW_EINVAL)));
    assert_eq!(tw_close(new), 0);
}

#[test]
fn addresses_links_and_backlogs_are_checked() {
    let new = tw_socket();
    for address in ["", "7700", "localhost:7700", "127.0.0.1", "::1:7700"] {
        assert_eq!(bind(new, address), TW_EINVAL, "{address}");
    }
    for (link, words) in [("", "the link does not begin"), ("tidewire://h:1/", "the link has no #SECRET")] {
        assert_eq!(connect(new, link), TW_EINVAL);
        assert!(last_error().starts_with(words), "{link}: {}", last_error());
    }
    for backlog in [0, -1, 4_097, c_int::MAX] {
        assert_eq!(tw_listen(new, backlog), TW_EINVAL);
    }
    // Nobody has this address (RFC 5737), so binding fails; the socket is as it was.
    assert_eq!((bind(new, "192.0.2.1:0"), tw_listen(new, 1)), (0, TW_EADDRNOTAVAIL), "{}", last_error());
    assert_eq!((bind(new, "127.0.0.1:0"), tw_listen(new, 1)), (0, 0));
    let taken = link(new, None).unwrap().split(['/', ':']).nth(4).unwrap().to_owned();
    let second = tw_socket();
    assert_eq!((bind(second, &format!("127.0.0.1:{taken}")), tw_listen(second, 1)), (0, TW_EADDRINUSE));
    assert_eq!((tw_close(new), tw_close(second)), (0, 0));
}

#[test]
fn key_pairs_open_what_they_are_listed_for() {
    let (ours, theirs) = (tidewire::PrivateKey::new([3; 32]), tidewire::PrivateKey::new([4; 32]));
    let listener = tw_socket();
    assert_eq!(bind(listener, "127.0.0.1:0"), 0);
    assert_eq!(set(listener, "private_key", &theirs.reveal()), 0);
    assert_eq!(tw_listen(listener, 1), TW_EINVAL);
    assert!(last_error().contains("authorized_keys"), "{}", last_error());
    assert_eq!(set(listener, "authorized_keys", &ours.public().to_string()), 0);
    assert_eq!(tw_listen(listener, 1), 0, "{}", last_error());
    let link = link(listener, None).unwrap();
    assert!(link.ends_with(&theirs.public().to_string()));

    let client = tw_socket();
    assert_eq!(connect(client, &link), TW_EINVAL);
    assert!(last_error().contains("private_key"), "{}", last_error());
    // That was found before anything was sent, so the socket is as it was.
    assert_eq!(set(client, "private_key", &ours.reveal()), 0);
    assert_eq!((connect(client, &link), send(client, b"x")), (0, 1), "{}", last_error());
    let server = tw_accept(listener);
    assert_eq!(receive(server, &mut [0; 4]), 1);
    for handle in [client, server, listener] {
        assert_eq!(tw_close(handle), 0);
    }
}
