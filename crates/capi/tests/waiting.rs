//! Who waits and who is woken: threads, `tw_poll` and descriptors. A lost wake-up shows as a test that stands
//! still, so each has a watchdog.

mod calls;

use std::ffi::c_int;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use calls::*;
use tidewire_capi::*;

/// Runs a test in a thread, and fails if it stands still.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("still waiting after a minute"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Whether a descriptor is readable, as the system's `poll` sees it.
fn is_readable(descriptor: c_int) -> bool {
    // SAFETY: it is a descriptor of an open handle, and lives longer than this use.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    // A copy, so that a peek takes nothing from the original.
    let socket = socket2::Socket::from(borrowed.try_clone_to_owned().unwrap());
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match socket.peek(&mut byte) {
        Ok(count) => count > 0,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            false
        }
    }
}

/// Waits until a descriptor is readable. `tw_poll` looks at the socket itself, and may see an instant before
/// the descriptor does that it has become ready.
fn until_readable(descriptor: c_int) {
    while !is_readable(descriptor) {
        thread::yield_now();
    }
}

fn close_all<const N: usize>(handles: [Handle; N]) {
    for handle in handles {
        assert_eq!(tw_close(handle), 0, "{}", last_error());
    }
}

#[test]
fn bytes_and_ends_pass_both_ways() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let mut buffer = [0; 16];
        assert_eq!((send(server, b"answer"), receive(client, &mut buffer)), (6, 6));
        assert_eq!(tw_shutdown(client, TW_SHUT_WR), 0);
        assert_eq!(send(client, b"more"), i64::from(TW_EPIPE));
        assert_eq!((receive(server, &mut buffer), receive(server, &mut buffer)), (0, 0));
        // The other half goes on.
        assert_eq!((send(server, b"last"), receive(client, &mut buffer)), (4, 4));
        assert_eq!((tw_shutdown(client, TW_SHUT_RD), receive(client, &mut buffer)), (0, 0));
        assert_eq!(tw_shutdown(client, TW_SHUT_RDWR), 0);
        close_all([client, server, listener]);
    });
}

#[test]
fn a_blocking_close_waits_until_everything_has_arrived() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let data = vec![7; 3_000_000];
        let reader = thread::spawn(move || {
            let (mut buffer, mut total) = (vec![0; 65_536], 0);
            loop {
                match receive(server, &mut buffer) {
                    0 => return (server, total),
                    n => total += usize::try_from(n).unwrap(),
                }
            }
        });
        assert_eq!(send(client, &data), 3_000_000);
        assert_eq!(tw_close(client), 0, "{}", last_error());
        let (server, total) = reader.join().unwrap();
        assert_eq!(total, 3_000_000);
        close_all([server, listener]);
    });
}

#[test]
fn nonblocking_calls_say_so_and_timeouts_end_waiting() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let mut buffer = [0; 16];
        for handle in [client, listener] {
            assert_eq!(set(handle, "nonblocking", "on"), 0);
        }
        assert_eq!(receive(client, &mut buffer), i64::from(TW_EAGAIN));
        assert_eq!(tw_accept(listener), i64::from(TW_EAGAIN));
        assert_eq!(poll(&mut [entry(client, TW_POLLIN), entry(listener, TW_POLLIN)], 10), 0);
        let big = vec![0; 1 << 20];
        let mut taken = 0;
        while send(client, &big) > 0 {
            taken += 1;
        }
        assert!(taken > 0);
        assert!(last_error().starts_with("the call would wait"), "{}", last_error());
        assert_eq!(set(server, "receive_timeout", "20ms"), 0);
        while receive(server, &mut vec![0; 1 << 20]) > 0 {}
        assert!(last_error().starts_with("the timeout of the socket has passed"), "{}", last_error());
        assert_eq!(set(listener, "nonblocking", "off"), 0);
        assert_eq!(set(listener, "receive_timeout", "20ms"), 0);
        assert_eq!(tw_accept(listener), i64::from(TW_ETIMEDOUT));
        close_all([client, server, listener]);
    });
}

#[test]
fn a_close_wakes_everybody_who_waits_on_the_handle() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let receivers: Vec<_> = (0..3).map(|_| thread::spawn(move || receive(client, &mut [0; 16]))).collect();
        let acceptor = thread::spawn(move || tw_accept(listener));
        let poller = thread::spawn(move || poll(&mut [entry(client, TW_POLLIN)], -1));
        // They may or may not sleep by now: both must end the same.
        thread::yield_now();
        let second = thread::spawn(move || receive(client, &mut [0; 16]));
        close_all([client, listener]);
        for receiver in receivers.into_iter().chain([second]) {
            assert_eq!(receiver.join().unwrap(), i64::from(TW_EBADF));
        }
        assert_eq!(acceptor.join().unwrap(), i64::from(TW_EBADF));
        assert_eq!(poller.join().unwrap(), TW_EBADF);
        assert_eq!(tw_close(server), 0);
    });
}

#[test]
fn threads_on_one_handle_share_its_bytes() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    let (mut buffer, mut sum) = (vec![0; 1_000], 0u64);
                    loop {
                        match receive(server, &mut buffer) {
                            n @ 1.. => sum += buffer[..n as usize].iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                            n => return (n, sum),
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (1..=4u8)
            .map(|byte| thread::spawn(move || assert_eq!(send(client, &vec![byte; 300_000]), 300_000)))
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(tw_shutdown(client, TW_SHUT_WR), 0);
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(ends.iter().all(|(end, _)| *end == 0), "{ends:?}");
        assert_eq!(ends.iter().map(|(_, sum)| sum).sum::<u64>(), 300_000 * (1 + 2 + 3 + 4));
        close_all([client, server, listener]);
    });
}

#[test]
fn a_descriptor_is_readable_exactly_while_its_socket_is_ready() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let (input, output) = (tw_fd(client, TW_POLLIN.into()), tw_fd(client, TW_POLLOUT.into()));
        assert_eq!(tw_fd(client, TW_POLLIN.into()), input, "asked twice");
        assert!(!is_readable(input) && is_readable(output));
        assert_eq!(send(server, b"ab"), 2);
        assert_eq!(poll(&mut [entry(client, TW_POLLIN)], FAULT_MS), 1);
        until_readable(input);
        let mut byte = [0];
        assert_eq!(receive(client, &mut byte), 1);
        // One byte is left: the level counts, not the change.
        assert!(is_readable(input));
        assert_eq!(receive(client, &mut byte), 1);
        assert!(!is_readable(input));

        // Until the window is full, and again from when there is room.
        assert_eq!(set(client, "nonblocking", "on"), 0);
        let big = vec![0; 1 << 20];
        while send(client, &big) > 0 {}
        let mut sink = vec![0; 1 << 20];
        loop {
            let mut entries = [entry(client, TW_POLLOUT), entry(server, TW_POLLIN)];
            assert!(poll(&mut entries, FAULT_MS) > 0);
            if entries[0].revents != 0 {
                break;
            }
            assert!(receive(server, &mut sink) > 0);
        }
        until_readable(output);

        // The end of the stream counts as ready, and stays so.
        assert_eq!(tw_shutdown(server, TW_SHUT_WR), 0);
        assert_eq!(poll(&mut [entry(client, TW_POLLIN)], FAULT_MS), 1);
        until_readable(input);
        assert_eq!((receive(client, &mut byte), receive(client, &mut byte)), (0, 0));
        assert!(is_readable(input));
        assert_eq!(set(client, "linger", "0s"), 0);
        close_all([client, server, listener]);
    });
}

/// Level-triggered to the letter: a reader that only ever receives when the descriptor is readable gets
/// everything, however arrivals, receives and other threads meet.
#[test]
fn no_wake_up_of_a_descriptor_is_lost() {
    within_a_minute(|| {
        const ROUNDS: usize = 3_000;
        let (client, server, listener) = pair();
        assert_eq!(set(server, "nonblocking", "on"), 0);
        let descriptor = tw_fd(server, TW_POLLIN.into());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                thread::spawn(move || {
                    let (mut total, mut byte) = (0, [0; 1]);
                    loop {
                        until_readable(descriptor);
                        match receive(server, &mut byte) {
                            1 => total += 1,
                            0 => return total,
                            code => assert_eq!(code, i64::from(TW_EAGAIN), "{}", last_error()),
                        }
                    }
                })
            })
            .collect();
        for round in 0..ROUNDS {
            assert_eq!(send(client, b"x"), 1);
            if round % 7 == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(tw_shutdown(client, TW_SHUT_WR), 0);
        let totals: Vec<usize> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(totals.iter().sum::<usize>(), ROUNDS, "{totals:?}");
        close_all([client, server, listener]);
    });
}

#[test]
fn one_poll_serves_a_listener_and_many_streams() {
    within_a_minute(|| {
        const CLIENTS: usize = 12;
        let (listener, link) = listener();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let link = link.clone();
                thread::spawn(move || {
                    let client = tw_socket();
                    assert_eq!(connect(client, &link), 0, "{}", last_error());
                    let mut answer = [0; 8];
                    for round in 0..50u64 {
                        assert_eq!(send(client, &round.to_le_bytes()), 8);
                        let mut got = 0;
                        while got < 8 {
                            let n = receive(client, &mut answer[got..]);
                            assert!(n > 0, "{}", last_error());
                            got += n as usize;
                        }
                        assert_eq!(answer, round.to_le_bytes());
                    }
                    assert_eq!(tw_close(client), 0);
                })
            })
            .collect();
        assert_eq!(set(listener, "nonblocking", "on"), 0);
        let mut entries = vec![entry(listener, TW_POLLIN)];
        let (mut ended, mut buffer) = (0, [0; 64]);
        while ended < CLIENTS {
            assert!(poll(&mut entries, FAULT_MS) > 0, "{}", last_error());
            if entries[0].revents & TW_POLLIN != 0 {
                let accepted = tw_accept(listener);
                assert!(accepted > 0 || accepted == i64::from(TW_EAGAIN), "{}", last_error());
                if accepted > 0 {
                    entries.push(entry(accepted, TW_POLLIN));
                }
            }
            let mut index = 1;
            while index < entries.len() {
                let PollEntry { handle, revents, .. } = entries[index];
                let n = if revents & TW_POLLIN != 0 { receive(handle, &mut buffer) } else { 1 };
                if revents & TW_POLLIN != 0 && n > 0 {
                    assert_eq!(send(handle, &buffer[..n as usize]), n);
                }
                if n == 0 {
                    assert_eq!(tw_close(handle), 0);
                    entries.remove(index);
                    ended += 1;
                } else {
                    entries[index].revents = 0;
                    index += 1;
                }
            }
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(tw_close(listener), 0);
    });
}

#[test]
fn an_attempt_that_fails_is_told_by_poll_and_by_every_call() {
    within_a_minute(|| {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let secret = tidewire::Secret::new([7; 32]).reveal().to_string();
        let link = format!("tidewire://{}/#{secret}", silent.local_addr().unwrap());
        let client = tw_socket();
        assert_eq!((set(client, "connect_timeout", "100ms"), set(client, "nonblocking", "on")), (0, 0));
        assert_eq!(connect(client, &link), TW_EINPROGRESS);
        let descriptor = tw_fd(client, TW_POLLOUT.into());
        let mut entries = [entry(client, TW_POLLOUT)];
        assert_eq!(poll(&mut entries, FAULT_MS), 1);
        assert_eq!(entries[0].revents, TW_POLLOUT | TW_POLLERR);
        until_readable(descriptor);
        for _ in 0..2 {
            assert_eq!(send(client, b"x"), i64::from(TW_ETIMEDOUT));
            assert!(last_error().starts_with("no answer from 127.0.0.1:"), "{}", last_error());
        }
        assert_eq!(receive(client, &mut [0; 4]), i64::from(TW_ETIMEDOUT));
        assert_eq!(connect(client, &link), TW_ETIMEDOUT);
        assert_eq!(tw_close(client), 0);

        let blocking = tw_socket();
        assert_eq!(set(blocking, "connect_timeout", "100ms"), 0);
        assert_eq!(connect(blocking, &link), TW_ETIMEDOUT);
        assert_eq!(tw_close(blocking), 0);
    });
}

#[test]
fn a_close_ends_an_attempt_that_goes_on() {
    within_a_minute(|| {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let secret = tidewire::Secret::new([7; 32]).reveal().to_string();
        let link = format!("tidewire://{}/#{secret}", silent.local_addr().unwrap());
        let client = tw_socket();
        let again = link.clone();
        let waiting = thread::spawn(move || connect(client, &link));
        // A packet has come, so the attempt goes on.
        assert!(silent.recv(&mut [0; 1_500]).unwrap() > 0);
        assert_eq!(tw_close(client), 0);
        assert_eq!(waiting.join().unwrap(), TW_EBADF);

        let client = tw_socket();
        assert_eq!(set(client, "nonblocking", "on"), 0);
        for _ in 0..2 {
            assert_eq!(connect(client, &again), TW_EINPROGRESS);
        }
        assert_eq!(send(client, b"x"), i64::from(TW_EAGAIN));
        assert_eq!(receive(client, &mut [0; 4]), i64::from(TW_EAGAIN));
        assert_eq!(poll(&mut [entry(client, TW_POLLOUT)], 0), 0);
        assert!(!is_readable(tw_fd(client, TW_POLLOUT.into())) && !is_readable(tw_fd(client, TW_POLLIN.into())));
        assert_eq!(tw_close(client), 0);
    });
}

#[test]
fn the_peer_that_closes_ends_receiving_and_sending() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let (waiting, mut buffer) = (thread::spawn(move || receive(client, &mut [0; 16])), vec![0; 100_000]);
        assert_eq!(tw_close(server), 0);
        assert_eq!(waiting.join().unwrap(), 0, "the close of the peer is the end of its stream");
        let refused = loop {
            let sent = send(client, &buffer);
            if sent < 0 {
                break sent;
            }
        };
        let wanted = [TW_EPIPE, TW_ECONNRESET].map(i64::from);
        assert!(wanted.contains(&refused), "{refused}: {}", last_error());
        assert!(receive(client, &mut buffer) <= 0);
        assert_eq!(set(client, "linger", "0s"), 0);
        close_all([client, listener]);
    });
}

/// A program that closes a descriptor of ours, against the rules, must not hang the library or kill the
/// process.
#[test]
fn a_descriptor_that_is_read_by_the_program_hangs_nobody() {
    within_a_minute(|| {
        let (client, server, listener) = pair();
        let descriptor = tw_fd(client, TW_POLLIN.into());
        // SAFETY: it is a descriptor of an open handle, and lives longer than this use.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
        let mut thief = UnixStream::from(borrowed.try_clone_to_owned().unwrap());
        assert_eq!((send(server, b"a"), poll(&mut [entry(client, TW_POLLIN)], FAULT_MS)), (1, 1));
        assert_eq!(io::Read::read(&mut thief, &mut [0; 8]).unwrap(), 1);
        let _ = thief.write(b"nonsense");
        assert_eq!(receive(client, &mut [0; 4]), 1);
        close_all([client, server, listener]);
    });
}
