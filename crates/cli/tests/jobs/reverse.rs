//! `forward -R` as a process: the far side listens, and what it accepts comes back through a lossy link.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::forward::{exchange, serve, start_server};
use crate::process::{Running, address, lossy_link, tidewire};
use crate::schema;

/// Starts a client whose far side listens. Returns the address that is open there.
fn reverse(listen: &str, target: &str, link: &str) -> (Running, String) {
    let mut client = Running::start(&["forward", "--json", "-R", &format!("{listen}:{target}"), link]);
    let open = far_port(&mut client);
    (client, open)
}

fn far_port(client: &mut Running) -> String {
    let listening = client.wait_for("listening");
    assert_eq!(listening["far"], true);
    listening["listening"].as_str().unwrap().to_owned()
}

/// How a client ends that cannot have its port: the exit code and its message.
fn refused(listen: &str, link: &str) -> (Option<i32>, String) {
    let ended = tidewire(&["forward", "--json", "-R", &format!("{listen}:web:80"), link]).output().unwrap();
    let lines = schema::lines(&ended.stdout);
    let error = lines.iter().find(|line| line["event"] == "error").unwrap();
    (ended.status.code(), error["message"].as_str().unwrap().to_owned())
}

fn whole<'a>(lines: &'a [Value], target: &'a str) -> usize {
    lines.iter().filter(|line| line["event"] == "forwarded" && line["ok"] == true && line["target"] == target).count()
}

#[test]
fn connections_to_two_far_ports_come_back_across_losses() {
    let targets = [start_server(), start_server().replace("127.0.0.1", "localhost")];
    let (mut server, direct) = serve(&["listen=*"], &[]);
    let lossy = ["--rate", "50mbit", "--rtt", "20ms", "--loss", "5%", "--back-loss", "5%"];
    let (_proxy, link) = lossy_link(&direct, &lossy);
    let options = targets.each_ref().map(|target| format!("0:{target}"));
    let mut client = Running::start(&["forward", "--json", "-R", &options[0], "-R", &options[1], &link]);
    let open = [far_port(&mut client), far_port(&mut client)];
    for port in &open {
        assert_eq!(server.wait_for("listening")["listening"], **port);
    }
    thread::scope(|scope| {
        for n in 0..60 {
            let port = &open[n % 2];
            // Each request ends with a half-close, and its answer follows.
            scope.spawn(move || exchange(port, 1_000 * n, 30_000 + n));
        }
    });
    client.interrupt();
    let (code, lines) = client.end();
    assert_eq!((code, whole(&lines, &targets[0]), whole(&lines, &targets[1])), (Some(130), 30, 30));
    server.interrupt();
    let (_, lines) = server.end();
    assert_eq!((whole(&lines, &open[0]), whole(&lines, &open[1])), (30, 30));
}

#[test]
fn a_reset_crosses_in_both_directions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_server, link) = serve(&["listen=*"], &[]);
    let (_client, port) = reverse("0", &listener.local_addr().unwrap().to_string(), &link);
    for from_target in [true, false] {
        let application = TcpStream::connect(&port).unwrap();
        let far = listener.accept().unwrap().0;
        let (resets, mut sees) = if from_target { (far, application) } else { (application, far) };
        sees.write_all(b"unread").unwrap();
        // Bytes that are unread at the close turn it into a reset.
        resets.peek(&mut [0]).unwrap();
        drop(resets);
        assert_eq!(sees.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_target_that_refuses_resets_the_far_connection() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (mut server, link) = serve(&["listen=*"], &[]);
    let (mut client, port) = reverse("0", &closed, &link);
    let mut tcp = TcpStream::connect(&port).unwrap();
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    for ended in [client.wait_for("forwarded"), server.wait_for("forwarded")] {
        assert_eq!(ended["ok"], false);
        assert!(ended["detail"].as_str().unwrap().contains("refused by the target"), "{ended}");
    }
}

#[test]
fn ports_that_are_not_allowed_or_taken_end_the_client() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut server, link) = serve(&["*:*", &format!("listen={taken}")], &[]);
    // Neither another port, nor another address, nor a port that the system chooses.
    for listen in [format!("0.0.0.0:{taken}"), "1".to_owned(), "0".to_owned()] {
        let (code, says) = refused(&listen, &link);
        assert_eq!(code, Some(4), "{listen}");
        assert!(says.contains("--allow listen="), "{says}");
        assert_eq!(server.wait_for("forwarded")["ok"], false);
    }
    let (client, port) = reverse(&taken.to_string(), "web:80", &link);
    assert_eq!(port, format!("127.0.0.1:{taken}"));
    let (code, says) = refused(&taken.to_string(), &link);
    assert_eq!(code, Some(7), "{says}");
    assert!(says.contains("cannot open the port"), "{says}");
    // The port is free again when its client ends.
    client.interrupt();
    assert_eq!(client.end().0, Some(130));
    server.wait_for("summary");
    let (_client, port) = reverse(&taken.to_string(), "web:80", &link);
    assert_eq!(port, format!("127.0.0.1:{taken}"));
}

/// A connection that is open when its port is closed goes on, and a restarted server is asked again.
#[test]
fn a_server_that_starts_again_listens_again() {
    let target = start_server();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let key = key.to_str().unwrap();
    assert!(tidewire(&["keygen", "-o", key]).status().unwrap().success());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let allow = format!("listen={free}");
    let (server, link) = serve(&[&allow], &["--key", key]);
    let (mut client, port) = reverse(&free, &target, &link);
    exchange(&port, 10, 1_000);
    // This one is cut off by the end of the server, and must not look whole.
    let mut cut = TcpStream::connect(&port).unwrap();
    cut.write_all(b"100000000\r\n").unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    cut.read_exact(&mut [0; 1_000]).unwrap();
    server.interrupt();
    assert_eq!(server.end().0, Some(130));
    assert_eq!(cut.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    client.wait_for("summary");
    let _again = Running::start(&["serve", "--json", "--listen", &address(&link), "--allow", &allow, "--key", key]);
    assert_eq!(far_port(&mut client), port);
    exchange(&port, 20, 2_000);
}
