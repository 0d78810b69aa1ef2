//! `forward -R` as a process: the far side listens, and what it accepts comes back through a lossy link.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::forward::{exchange, serve, start_server};
use crate::keys::pair;
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
    // A client that has the port itself would wait for ever.
    let twice = format!("{taken}:web:80");
    let ended = tidewire(&["forward", "--json", "-R", &twice, "-R", &twice, &link]).output().unwrap();
    assert_eq!(ended.status.code(), Some(7));
    let says = String::from_utf8(ended.stdout).unwrap();
    assert!(says.contains("cannot open the port"), "{says}");
    // The port is free again when its client ends.
    server.wait_for("summary");
    let (_client, port) = reverse(&taken.to_string(), "web:80", &link);
    assert_eq!(port, format!("127.0.0.1:{taken}"));
}

#[test]
fn a_client_waits_for_a_port_that_another_has() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let (_server, link) = serve(&[&format!("listen={free}")], &[]);
    let (first, port) = reverse(&free, "web:80", &link);
    let folder = tempfile::tempdir().unwrap();
    let errors = folder.path().join("errors");
    let forward = ["forward", "--json", "-R", &format!("{free}:web:80"), &link];
    let mut second = Running::spawn_with_errors(&mut tidewire(&forward), File::create(&errors).unwrap());
    while !fs::read_to_string(&errors).unwrap().contains("in use at the far side") {
        assert_eq!(second.child.try_wait().unwrap(), None, "it waits");
        thread::sleep(Duration::from_millis(5));
    }
    first.interrupt();
    assert_eq!(first.end().0, Some(130));
    assert_eq!(far_port(&mut second), port);
}

#[test]
fn a_client_with_a_key_takes_its_port_over_from_its_older_session() {
    let folder = tempfile::tempdir().unwrap();
    let ((server_key, _), (key, public)) = (pair(folder.path(), "server"), pair(folder.path(), "client"));
    let peers = folder.path().join("peers");
    fs::write(&peers, format!("{public}\n")).unwrap();
    let [server_key, key, peers] = [&server_key, &key, &peers].map(|path| path.to_str().unwrap());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let keys = ["--key", server_key, "--authorized-keys", peers];
    let (mut server, link) = serve(&[&format!("listen={free}")], &keys);
    let start =
        || Running::start(&["forward", "--json", "--key", key, "-R", &format!("{free}:{}", start_server()), &link]);
    let mut killed = start();
    let port = far_port(&mut killed);
    killed.child.kill().unwrap();
    // The server does not know yet that the first client is gone.
    let mut again = start();
    assert_eq!(far_port(&mut again), port);
    exchange(&port, 10, 1_000);
    // Nor does it matter whether the older session still lives.
    let mut later = start();
    assert_eq!(far_port(&mut later), port);
    exchange(&port, 20, 2_000);
    later.interrupt();
    assert_eq!(later.end().0, Some(130));
    assert_eq!(server.wait_for("summary")["event"], "summary");
    // The older one asks again, and gets the port back.
    assert_eq!(far_port(&mut again), port);
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
