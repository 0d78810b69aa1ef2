//! `forward -D` as a process: SOCKS clients reach through a lossy link what `--allow` covers, and hostile
//! ones harm nobody.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use crate::forward::{exchange, exchange_over, serve, start_server};
use crate::process::{Running, lossy_link, tidewire};

const LOSSY: [&str; 8] = ["--rate", "50mbit", "--rtt", "20ms", "--loss", "5%", "--back-loss", "5%"];

/// Starts a client with a port for SOCKS clients. Returns its address.
fn socks(link: &str) -> (Running, String) {
    let mut client = Running::start(&["forward", "--json", "-D", "0", link]);
    let listening = client.wait_for("listening");
    assert_eq!(listening["to"], "socks5");
    let port = listening["listening"].as_str().unwrap().to_owned();
    (client, port)
}

/// A CONNECT for a name.
fn request(target: &str) -> Vec<u8> {
    let (host, port) = target.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    [b"\x05\x01\0\x05\x01\0\x03", &[host.len() as u8][..], host.as_bytes(), &port.to_be_bytes()].concat()
}

/// Sends a request for a target, in parts of `step` bytes. Returns the connection and the reply.
fn ask(socks: &str, target: &str, step: usize) -> (TcpStream, u8) {
    let mut client = TcpStream::connect(socks).unwrap();
    client.set_nodelay(true).unwrap();
    for part in request(target).chunks(step) {
        client.write_all(part).unwrap();
    }
    let mut replies = [0; 12];
    client.read_exact(&mut replies).unwrap();
    assert_eq!(replies[..3], [5, 0, 5]);
    (client, replies[3])
}

/// A port that is closed: it was bound and closed again.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn socks_clients_reach_allowed_targets_across_losses() {
    let target = start_server();
    let by_name = target.replace("127.0.0.1", "localhost");
    let (server, direct) = serve(&["127.0.0.1:*", "localhost:*"], &[]);
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let (client, port) = socks(&link);
    thread::scope(|scope| {
        for n in 0..60 {
            let (port, target) = (&port, if n % 2 == 0 { &target } else { &by_name });
            // Every third client sends byte by byte. The half-close at the end of the request is part of
            // each.
            scope.spawn(move || {
                let (tcp, reply) = ask(port, target, if n % 3 == 0 { 1 } else { 1_000 });
                assert_eq!(reply, 0);
                exchange_over(tcp, 1_000 * n, 30_000 + n);
            });
        }
    });
    client.interrupt();
    let (code, lines) = client.end();
    assert_eq!(code, Some(130));
    let whole = |target: &str| {
        lines
            .iter()
            .filter(|line| line["event"] == "forwarded" && line["ok"] == true && line["target"] == target)
            .count()
    };
    assert_eq!((whole(&target), whole(&by_name)), (30, 30));
    drop(server);
}

#[test]
fn refusals_have_the_replies_of_the_rfc() {
    let target = start_server();
    let closed = closed_port();
    let (mut server, link) = serve(&[&target, &format!("127.0.0.1:{closed}"), "*:*", "nowhere.invalid:1"], &[]);
    let (mut client, port) = socks(&link);
    for (target, wanted, says) in [
        // Wildcards do not cover this machine: neither its addresses nor its names.
        ("127.0.0.1:1".to_owned(), 2, "--allow"),
        ("localhost:80".to_owned(), 2, "--allow"),
        (format!("127.0.0.1:{closed}"), 5, "refused by the target"),
        ("nowhere.invalid:1".to_owned(), 4, "cannot reach"),
    ] {
        let (mut tcp, reply) = ask(&port, &target, 1_000);
        assert_eq!(reply, wanted, "{target}");
        assert_eq!(tcp.read_to_end(&mut Vec::new()).unwrap(), 0, "an orderly end after the reply");
        let ended = client.wait_for("forwarded");
        assert_eq!((&ended["target"], &ended["ok"]), (&target.as_str().into(), &false.into()));
        assert!(ended["detail"].as_str().unwrap().contains(says), "{ended}");
        assert_eq!(server.wait_for("forwarded")["target"], target);
    }
    let (tcp, _) = ask(&port, &target, 1_000);
    exchange_over(tcp, 10, 1_000);
}

/// What one SOCKS client does wrong ends its own connection. The port beside it and other SOCKS clients work
/// on.
#[test]
#[ignore = "slow: waits in real time"]
fn hostile_socks_clients_end_alone() {
    let target = start_server();
    let (_server, link) = serve(&[&target], &[]);
    let mut client = Running::start(&["forward", "--json", "-L", &format!("0:{target}"), "-D", "0", &link]);
    let mut next = || client.wait_for("listening")["listening"].as_str().unwrap().to_owned();
    let (local, port) = (next(), next());
    // More of them than may send their requests at a time. The last ones wait to be accepted.
    let stalled: Vec<TcpStream> = (0..150u8)
        .map(|n| {
            let mut tcp = TcpStream::connect(&port).unwrap();
            tcp.write_all(&request(&target)[..usize::from(n % 10)]).unwrap();
            tcp
        })
        .collect();
    exchange(&local, 1_000, 50_000);
    for mut tcp in stalled {
        // Ended after five seconds: in order, or by a reset if something was unread.
        let mut got = Vec::new();
        let _ = tcp.read_to_end(&mut got);
        assert!(got.is_empty() || got == [5, 0], "{got:?}");
    }
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x04\x01\0\x50\x7f\0\0\x01\0", &[0xff; 100_000]] {
        let mut tcp = TcpStream::connect(&port).unwrap();
        let _ = tcp.write_all(garbage);
        assert!(matches!(tcp.read(&mut [0]), Ok(0) | Err(_)));
    }
    let (tcp, reply) = ask(&port, &target, 1);
    assert_eq!(reply, 0);
    exchange_over(tcp, 1_000, 50_000);
    exchange(&local, 1_000, 50_000);
    client.interrupt();
    let (code, lines) = client.end();
    assert_eq!(code, Some(130));
    let counted = |ok: bool, target: &str| {
        lines.iter().filter(|line| line["event"] == "forwarded" && line["ok"] == ok && line["target"] == target).count()
    };
    assert_eq!((counted(false, "socks5"), counted(true, &target)), (153, 3));
}

#[test]
fn a_reset_crosses_in_both_directions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_server, link) = serve(&[&target], &[]);
    let (_client, port) = socks(&link);
    let pair = || {
        let application = ask(&port, &target, 1_000).0;
        (application, listener.accept().unwrap().0)
    };
    for from_target in [true, false] {
        let (application, far) = pair();
        let (resets, mut sees) = if from_target { (far, application) } else { (application, far) };
        sees.write_all(b"unread").unwrap();
        // Bytes that are unread at the close turn it into a reset.
        resets.peek(&mut [0]).unwrap();
        drop(resets);
        assert_eq!(sees.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_far_side_that_does_not_forward_ends_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let mut receiver = Running::start(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir", dir]);
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let ended = tidewire(&["forward", "-D", "0", &link]).output().unwrap();
    let says = String::from_utf8(ended.stderr).unwrap();
    // The other end may close before its answer is read.
    assert!(matches!(ended.status.code(), Some(1 | 3)), "{says}");
    assert!(says.contains("must run `tidewire serve`") || says.contains("closed by the peer"), "{says}");
}

/// A web server with a page, a script that changes it and an image.
fn start_web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(client));
        }
    });
    address
}

fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // The head ends with an empty line.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let script = format!("/*{}*/ document.title = 'crossed'", "x".repeat(300_000));
    let (kind, body) = match path {
        "/" => ("text/html", "<html><body><script src='/script.js'></script></body></html>"),
        "/script.js" => ("text/javascript", script.as_str()),
        _ => ("text/plain", ""),
    };
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    client.write_all(body.as_bytes())?;
    client.shutdown(Shutdown::Write)
}

/// Fails unless the machine has a program.
pub fn needs(program: &str) {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    tidewire_testing::needs(program, found);
}

#[test]
#[ignore = "needs curl"]
fn curl_lets_the_far_side_resolve() {
    needs("curl");
    let web = start_web_server().replace("127.0.0.1", "localhost");
    let (mut server, direct) = serve(&[&web], &[]);
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let (_client, port) = socks(&link);
    let url = format!("http://{web}/script.js");
    let got = Command::new("curl").args(["-sS", "--socks5-hostname", &port, &url]).output().unwrap();
    assert!(got.status.success() && got.stdout.len() > 300_000, "{got:?}");
    // The name crossed, and not the address that it has here.
    assert_eq!(server.wait_for("forwarded")["target"], web);
}

#[test]
#[ignore = "needs chromium"]
fn a_browser_loads_a_page_across_losses() {
    needs("chromium");
    let web = start_web_server().replace("127.0.0.1", "localhost");
    let (mut server, direct) = serve(&[&web], &[]);
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let (_client, port) = socks(&link);
    let profile = tempfile::tempdir().unwrap();
    let page = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--proxy-server=socks5://{port}"))
        // Without this, a browser asks this machine itself for `localhost`.
        .arg("--proxy-bypass-list=<-loopback>")
        .args(["--dump-dom", &format!("http://{web}/")])
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&page.stdout);
    assert!(dom.contains("<title>crossed</title>"), "{dom}\n{}", String::from_utf8_lossy(&page.stderr));
    // A browser also asks for hosts of its maker, which are not allowed here.
    while server.wait_for("forwarded")["target"] != web {}
}
