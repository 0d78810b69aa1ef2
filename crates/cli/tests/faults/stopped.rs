//! Processes are stopped by SIGSTOP for 30 s and continue after SIGCONT. The default idle timeout is 60 s, so
//! every connection lives: no process connects again or starts from the beginning.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Child;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Running, lossy_link, tidewire};
use crate::{receive, write};

/// Bytes of each job: 2.4 s at the rate of the link, so each job is under way when its process is stopped.
const BYTES: usize = 6_000_000;
const LINK: [&str; 4] = ["--rate", "20mbit", "--rtt", "20ms"];

/// Which of two processes is stopped.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    /// The one that connects.
    Connecting,
    /// The one that listens.
    Listening,
}

/// Stops the process for the time of the row, or a tenth of it with few seeds. The test is about this time,
/// so it does not wait for anything else.
fn stop(process: &Child) {
    let pid = Pid::from_child(process);
    kill_process(pid, Signal::STOP).unwrap();
    thread::sleep(Duration::from_secs(if tidewire_testing::few_seeds() { 3 } else { 30 }));
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
#[ignore = "slow: waits in real time"]
fn e7_a_process_that_is_stopped_for_thirty_seconds_goes_on() {
    // All jobs run at once, because they stand still nearly all of the time.
    thread::scope(|scope| {
        for stopped in [Stopped::Connecting, Stopped::Listening] {
            scope.spawn(move || copy(stopped));
            scope.spawn(move || forwarded(stopped));
        }
    });
}

/// A file arrives whole over the first connection.
fn copy(stopped: Stopped) {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    write(&file, BYTES as u64);
    fs::create_dir(&into).unwrap();
    let mut receiver = Running::spawn(&mut receive(&into, "127.0.0.1:0"));
    let direct = receiver.line()["link"].as_str().unwrap().to_owned();
    let (_proxy, link) = lossy_link(&direct, &LINK);
    let mut sender = Running::spawn(tidewire(&["send", "--json"]).arg(&file).arg(&link));
    let before = sender.wait_for("progress")["bytes"].as_u64().unwrap();
    assert!(0 < before && before < BYTES as u64, "{before} bytes when it was stopped");
    match stopped {
        Stopped::Connecting => stop(&sender.child),
        Stopped::Listening => stop(&receiver.child),
    }
    let (code, lines) = sender.end();
    assert_eq!(code, Some(0), "{stopped:?}: {lines:?}");
    let again = |line: &serde_json::Value| line["event"] == "connected" || line["event"] == "resumed";
    assert!(!lines.iter().any(again), "{stopped:?}: {lines:?}");
    let (code, lines) = receiver.end();
    assert_eq!(code, Some(0), "{stopped:?}: {lines:?}");
    let connections = lines.iter().filter(|line| line["event"] == "connected").count();
    let tally = lines.iter().find(|line| line["event"] == "tally").unwrap();
    assert_eq!((connections, &tally["moved_bytes"]), (1, &BYTES.into()), "{stopped:?}");
    assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap(), "{stopped:?}: other bytes");
}

/// A TCP connection through `forward` carries every byte there and back.
fn forwarded(stopped: Stopped) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    // Returns the bytes that it receives.
    let echo = thread::spawn(move || {
        let (mut reader, _) = listener.accept().unwrap();
        let mut writer = reader.try_clone().unwrap();
        std::io::copy(&mut reader, &mut writer).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut server = Running::start(&["serve", "--json", "--listen", "127.0.0.1:0", "--allow", &target]);
    let direct = server.line()["link"].as_str().unwrap().to_owned();
    let (_proxy, link) = lossy_link(&direct, &LINK);
    let mut client = Running::start(&["forward", "--json", "-L", &format!("0:{target}"), &link]);
    let local = client.wait_for("listening")["listening"].as_str().unwrap().to_owned();

    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    let mut tcp = TcpStream::connect(&local).unwrap();
    let mut writer = tcp.try_clone().unwrap();
    let mut returned = vec![0; BYTES / 10];
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        tcp.read_exact(&mut returned).unwrap();
        match stopped {
            Stopped::Connecting => stop(&client.child),
            Stopped::Listening => stop(&server.child),
        }
        tcp.read_to_end(&mut returned).unwrap();
    });
    assert!(returned == bytes, "{stopped:?}: {} bytes of {BYTES}, or others", returned.len());
    echo.join().unwrap();
    client.interrupt();
    let (code, lines) = client.end();
    assert_eq!(code, Some(130));
    let connected = lines.iter().any(|line| line["event"] == "connected");
    assert!(!connected, "{stopped:?}: it connected again: {lines:?}");
}
