//! `forward` and `serve` as processes, with a lossy link between them: the bytes of TCP connections arrive
//! unchanged.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::process::{Running, address, lossy_link, tidewire};
use crate::schema;

/// Starts a server like those of HTTP/1.0: it reads a request to its end, answers with as many bytes as the
/// request names, and sends their hash.
pub fn start_server() -> String {
    start_server_at("127.0.0.1:0")
}

/// The same at an address of the network in which this thread is.
pub fn start_server_at(address: &str) -> String {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(client));
        }
    });
    address
}

fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let mut request = BufReader::new(client.try_clone()?);
    let mut line = String::new();
    request.read_line(&mut line)?;
    // The body must be whole before the answer begins. The half-close ends it.
    let mut body = Vec::new();
    request.read_to_end(&mut body)?;
    let mut answer = vec![0; line.trim().parse().unwrap()];
    blake3::Hasher::new().update(&body).finalize_xof().fill(&mut answer);
    client.write_all(&answer)
}

/// Asks for `length` bytes with a body of `sent` bytes. The answer must be the one to exactly this body.
pub fn exchange(address: &str, sent: usize, length: usize) {
    exchange_over(TcpStream::connect(address).unwrap(), sent, length);
}

/// The same over a connection that is there.
pub fn exchange_over(mut client: TcpStream, sent: usize, length: usize) {
    let body: Vec<u8> = (0..sent).map(|n| (n ^ length) as u8).collect();
    write!(client, "{length}\r\n").unwrap();
    client.write_all(&body).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let mut wanted = vec![0; length];
    blake3::Hasher::new().update(&body).finalize_xof().fill(&mut wanted);
    assert!(answer == wanted, "{} of {length} bytes, or others", answer.len());
}

pub fn serve(allow: &[&str], more: &[&str]) -> (Running, String) {
    let allow: Vec<&str> = allow.iter().flat_map(|target| ["--allow", target]).collect();
    let mut server = Running::start(&[&["serve", "--json", "--listen", "127.0.0.1:0"], &allow[..], more].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    (server, link)
}

/// Starts a client that listens for `target` on a free port. Returns its address.
pub fn forward(target: &str, link: &str) -> (Running, String) {
    forward_with(target, link, &[])
}

/// The same with more options.
pub fn forward_with(target: &str, link: &str, more: &[&str]) -> (Running, String) {
    let local = format!("0:{target}");
    let mut client = Running::start(&[&["forward", "--json", "-L", &local, link], more].concat());
    let local = client.wait_for("listening")["listening"].as_str().unwrap().to_owned();
    (client, local)
}

#[test]
fn two_hundred_connections_cross_losses_and_one_that_is_not_read_stops_none() {
    let target = start_server();
    let (server, direct) = serve(&[&target], &[]);
    let lossy = ["--rate", "100mbit", "--rtt", "20ms", "--loss", "10%", "--back-loss", "5%"];
    let (_proxy, link) = lossy_link(&direct, &lossy);
    let (client, local) = forward(&target, &link);
    let mut unread = TcpStream::connect(&local).unwrap();
    unread.write_all(b"100000000\r\n").unwrap();
    unread.shutdown(Shutdown::Write).unwrap();
    // The answer has begun.
    unread.read_exact(&mut [0; 1000]).unwrap();
    thread::scope(|scope| {
        for n in 0..200 {
            let local = &local;
            scope.spawn(move || exchange(local, 100 * n, 50_000 + n));
        }
    });
    drop(unread);
    client.interrupt();
    let (code, lines) = client.end();
    assert_eq!(code, Some(130));
    let whole = lines.iter().filter(|line| line["event"] == "forwarded" && line["ok"] == true).count();
    assert_eq!(whole, 200);
    let summary = lines.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert!(summary["symbols"]["repaired"].as_u64().unwrap() > 0, "{summary}");
    drop(server);
}

/// The usual limit of open files is that of two clients with all their streams. One client that has more open
/// than the limit takes nothing from another.
#[test]
fn a_client_with_many_connections_leaves_files_for_another() {
    let target = start_server();
    let serve = tidewire(&["serve", "--json", "--listen", "127.0.0.1:0", "--allow", &target]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\""]).arg(serve.get_program()).args(serve.get_args());
    let mut server = Running::spawn(limited.env("TIDEWIRE_CONFIG", "/dev/null"));
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let [(_greedy, all), (_client, local)] = [(); 2].map(|()| forward(&target, &link));
    let held: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut held = TcpStream::connect(&all).unwrap();
            held.write_all(b"1000\r\n").unwrap();
            held
        })
        .collect();
    // What the last of them gets back shows that the server has connected all before.
    let mut last = held.last().unwrap();
    last.shutdown(Shutdown::Write).unwrap();
    let _ = last.read_to_end(&mut Vec::new());
    exchange(&local, 1_000, 1_000);
    drop(held);
}

#[test]
fn a_target_that_is_not_allowed_ends_the_client_with_4() {
    let (mut server, link) = serve(&["web.example:80"], &[]);
    for target in ["web.example:81", "127.0.0.1:80", "other.example:80"] {
        let client = tidewire(&["forward", "--json", "-L", &format!("0:{target}"), &link]).output().unwrap();
        assert_eq!(client.status.code(), Some(4), "{target}");
        let lines = schema::lines(&client.stdout);
        let error = lines.iter().find(|line| line["event"] == "error").unwrap();
        assert!(error["message"].as_str().unwrap().contains("--allow"), "{error}");
        let refused = server.wait_for("forwarded");
        assert_eq!((&refused["target"], &refused["ok"]), (&target.into(), &false.into()));
    }
}

#[test]
fn a_target_that_refuses_resets_the_connection_and_is_named() {
    // The port is bound and closed again, so nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (_server, link) = serve(&[&closed], &[]);
    let (mut client, local) = forward(&closed, &link);
    let mut tcp = TcpStream::connect(&local).unwrap();
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let ended = client.wait_for("forwarded");
    assert_eq!(ended["ok"], false);
    assert!(ended["detail"].as_str().unwrap().contains("refused by the target"), "{ended}");
    client.interrupt();
    assert_eq!(client.end().0, Some(130));
}

/// The target fails in the middle of its answer. The client must not take the part for the whole.
#[test]
fn a_target_that_resets_in_the_middle_resets_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        client.write_all(&[7; 1000]).unwrap();
        // Bytes that are unread at the close turn it into a reset.
        client.peek(&mut [0]).unwrap();
    });
    let (_server, link) = serve(&[&target], &[]);
    let (_client, local) = forward(&target, &link);
    let mut tcp = TcpStream::connect(&local).unwrap();
    tcp.read_exact(&mut [0; 1000]).unwrap();
    tcp.write_all(b"unread").unwrap();
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// A client that is stopped in the middle of an answer: neither application may take the part for the whole.
#[test]
fn a_client_that_is_interrupted_resets_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_server, link) = serve(&[&target], &[]);
    let (client, local) = forward(&target, &link);
    let mut near = TcpStream::connect(&local).unwrap();
    near.write_all(b"request").unwrap();
    let mut far = listener.accept().unwrap().0;
    far.write_all(b"part").unwrap();
    far.read_exact(&mut [0; 7]).unwrap();
    near.read_exact(&mut [0; 4]).unwrap();
    client.interrupt();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(client.end().0, Some(130));
}

#[test]
fn a_server_that_starts_again_is_found_again() {
    let target = start_server();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let key = key.to_str().unwrap();
    assert!(tidewire(&["keygen", "-o", key]).status().unwrap().success());
    let (server, link) = serve(&[&target], &["--key", key]);
    let (mut client, local) = forward(&target, &link);
    exchange(&local, 10, 1000);
    server.interrupt();
    let (code, lines) = server.end();
    assert_eq!((code, &lines.last().unwrap()["event"]), (Some(130), &"summary".into()));
    client.wait_for("summary");
    let arguments = ["serve", "--json", "--listen", &address(&link), "--allow", &target, "--key", key];
    let mut again = Running::start(&arguments);
    // The client holds this until there is a connection again.
    exchange(&local, 20, 2000);
    again.wait_for("forwarded");
    client.wait_for("connected");
}

#[test]
fn a_port_that_is_taken_ends_with_7() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = format!("{}:web:80", taken.local_addr().unwrap());
    let (_server, link) = serve(&["web:80"], &[]);
    let client = tidewire(&["forward", "-L", &local, &link]).output().unwrap();
    assert_eq!(client.status.code(), Some(7));
    let server = tidewire(&["serve", "--listen", &address(&link), "--allow", "web:80"]).output().unwrap();
    assert_eq!(server.status.code(), Some(7));
}

/// An application that writes as fast as it can gets ahead of its reader by a few buffers that fit a slow
/// path, and no further. 2.5 MB were 20 s of this link. The test counts bytes and not time, so a busy machine
/// changes nothing.
#[test]
#[cfg(target_os = "linux")]
fn issue_13_an_application_does_not_write_seconds_ahead_of_a_slow_link() {
    /// 210 KB were measured here, 180 KB of them in the application's send buffer. Linux increases that
    /// buffer with the reordering that it once saw on loopback, and remembers it.
    const MOST_AHEAD: u64 = 1 << 20;
    /// 1.6 s of the link: long enough to fill a send buffer of 2.5 MB.
    const READ: u64 = 200_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_server, direct) = serve(&[&target], &[]);
    let (_proxy, link) = lossy_link(&direct, &["--rate", "1mbit", "--rtt", "80ms"]);
    let (_client, local) = forward(&target, &link);
    let written = Arc::new(AtomicU64::new(0));
    let mut application = TcpStream::connect(&local).unwrap();
    let counted = Arc::clone(&written);
    // The thread ends when the reader is gone.
    let writer = thread::spawn(move || {
        while let Ok(more) = application.write(&[7; 16 << 10]) {
            counted.fetch_add(more as u64, Ordering::Relaxed);
        }
    });
    let (mut reader, _) = listener.accept().unwrap();
    let (mut read, mut ahead) = (0, 0);
    while read < READ {
        read += reader.read(&mut [0; 4 << 10]).unwrap() as u64;
        ahead = ahead.max(written.load(Ordering::Relaxed).saturating_sub(read));
    }
    println!("{ahead} bytes ahead");
    assert!(ahead <= MOST_AHEAD, "{ahead}");
    drop(reader);
    writer.join().unwrap();
}
