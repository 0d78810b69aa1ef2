//! What a receiver allows the files of its peers: a mode under its umask, space, and separate parts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use crate::keys::pair;
use crate::process::{Running, tidewire};
use crate::schema;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn modes_arrive_under_the_umask_of_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    fs::create_dir(&into).unwrap();
    fs::create_dir(&from).unwrap();
    let files = [("secret", 0o600, 0o600), ("open", 0o666, 0o640), ("tool", 0o6755, 0o750), ("locked", 0o444, 0o440)];
    for (name, given, _) in files {
        fs::write(from.join(name), b"content").unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(given)).unwrap();
    }
    fs::set_permissions(&from, fs::Permissions::from_mode(0o700)).unwrap();
    let receive = tidewire(&["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(receive.get_program()).args(receive.get_args()).arg(&into);
    let mut receiver = Running::spawn(command.env("TIDEWIRE_CONFIG", "/dev/null"));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    assert!(tidewire(&["send"]).arg(&from).arg(&link).status().unwrap().success());
    assert_eq!(receiver.end().0, Some(0));
    for (name, _, wanted) in files {
        assert_eq!(mode(&into.join("from").join(name)), wanted, "{name}");
    }
    assert_eq!(mode(&into.join("from")), 0o700);
}

#[test]
fn names_that_are_not_utf_8_arrive_and_are_told_with_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    fs::create_dir(&into).unwrap();
    // The byte at the end is no UTF-8. ESC would change the colours of a terminal.
    let name = OsStr::from_bytes(b"caf\xe9\x1b[31m");
    fs::create_dir(&from).unwrap();
    fs::write(from.join(name), b"content").unwrap();
    let mut receiver =
        Running::spawn(tidewire(&["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"]).arg(&into));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let sent = tidewire(&["send", "--json"]).arg(&from).arg(&link).output().unwrap();
    assert_eq!(sent.status.code(), Some(0));
    let (code, received) = receiver.end();
    assert_eq!(code, Some(0));
    for lines in [schema::lines(&sent.stdout), received] {
        let file = lines.iter().find(|line| line["event"] == "file" && line["bytes"] == 7).unwrap();
        assert_eq!(file["path"], "from/caf\\xe9\u{1b}[31m");
        assert_eq!(file["path_bytes"], "66726f6d2f636166e91b5b33316d");
        assert!(lines.iter().any(|line| line["path"] == "from" && line["path_bytes"].is_null()), "{lines:?}");
    }
    assert_eq!(fs::read(into.join("from").join(name)).unwrap(), b"content");
}

#[test]
fn a_file_that_stands_is_told_at_both_ends_and_kept_or_replaced() {
    for (existing, code) in [(&[][..], 7), (&["--existing", "keep"], 7), (&["--existing", "replace"], 0)] {
        let folder = tempfile::tempdir().unwrap();
        let (from, into) = (folder.path().join("f"), folder.path().join("into"));
        fs::create_dir(&into).unwrap();
        fs::write(&from, b"theirs").unwrap();
        fs::write(into.join("f"), b"mine").unwrap();
        let mut receive = tidewire(&["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"]);
        let mut receiver = Running::spawn(receive.arg(&into).args(existing));
        let link = receiver.line()["link"].as_str().unwrap().to_owned();
        let sent = tidewire(&["send", "--json"]).arg(&from).arg(&link).output().unwrap();
        let (received, lines) = receiver.end();
        assert_eq!((sent.status.code(), received), (Some(code), Some(code)), "{existing:?}");
        for lines in [schema::lines(&sent.stdout), lines] {
            let file = lines.iter().find(|line| line["event"] == "file").unwrap();
            assert_eq!((file["ok"] == true, file["reason"] == "exists"), (code == 0, code != 0), "{file}");
        }
        assert_eq!(fs::read(into.join("f")).unwrap(), if code == 0 { &b"theirs"[..] } else { b"mine" });
    }
}

#[test]
fn links_arrive_if_both_ends_want_them_and_skipped_ones_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), b"content").unwrap();
    std::os::unix::fs::symlink("f", from.join("l")).unwrap();
    let send = |links: &[&str], consent: Option<&str>| {
        let into = tempfile::tempdir_in(folder.path()).unwrap();
        let mut receive = tidewire(&["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"]);
        let mut receiver = Running::spawn(receive.arg(into.path()).args(consent));
        let link = receiver.line()["link"].as_str().unwrap().to_owned();
        let sent = tidewire(&["send"]).arg(&from).arg(&link).args(links).output().unwrap();
        receiver.end();
        let arrived = fs::read_link(into.path().join("from/l")).map(|target| target.into_os_string());
        (sent.status.code(), String::from_utf8(sent.stderr).unwrap(), arrived.ok(), into)
    };
    let (code, said, arrived, _) = send(&[], Some("--links"));
    assert!(code == Some(7) && arrived.is_none() && said.contains("1 symbolic link is not sent"), "{said}");
    let (code, said, arrived, _) = send(&["--links", "keep"], Some("--links"));
    assert_eq!((code, arrived), (Some(0), Some("f".into())), "{said}");
    let (code, said, arrived, _) = send(&["--links", "keep"], None);
    assert!(code == Some(7) && arrived.is_none() && said.contains("receive --links"), "{said}");
    let (code, said, _, into) = send(&["--links", "follow"], None);
    assert_eq!((code, fs::read(into.path().join("from/l")).unwrap()), (Some(0), b"content".to_vec()), "{said}");
}

#[test]
fn a_log_that_has_grown_brings_only_what_was_added() {
    let folder = tempfile::tempdir().unwrap();
    let (log, into) = (folder.path().join("log"), folder.path().join("into"));
    fs::create_dir(&into).unwrap();
    let mut bytes = vec![7; (4 << 20) + 1_000];
    for added in [0, 500] {
        bytes.extend(std::iter::repeat_n(9, added));
        fs::write(&log, &bytes).unwrap();
        let receive = ["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"];
        let mut receiver = Running::spawn(tidewire(&receive).arg(&into));
        let link = receiver.line()["link"].as_str().unwrap().to_owned();
        let sent = tidewire(&["send", "--json", "--growing"]).arg(&log).arg(&link).output().unwrap();
        assert_eq!((sent.status.code(), receiver.end().0), (Some(0), Some(0)));
        let lines = schema::lines(&sent.stdout);
        let tally = lines.iter().find(|line| line["event"] == "tally").unwrap();
        let wanted = if added == 0 { bytes.len() } else { 1_500 };
        assert_eq!(tally["moved_bytes"], wanted, "{tally}");
        assert!(fs::read(into.join("log")).unwrap() == bytes);
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_ends_receive_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    fs::set_permissions(&into, fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tidewire(&["receive", "--listen", "127.0.0.1:0", "--dir"]);
    command.arg(&into);
    // Root may write everywhere, so another user tries, who has to reach the program.
    if rustix::process::geteuid().is_root() {
        let program = folder.path().join("tidewire");
        fs::copy(command.get_program(), &program).unwrap();
        let arguments: Vec<_> = command.get_args().map(OsStr::to_owned).collect();
        command = std::process::Command::new(program);
        command.args(arguments).env("TIDEWIRE_CONFIG", "/dev/null").uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("cannot receive into") && said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
}

#[test]
fn hard_links_are_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&into).unwrap();
    fs::write(from.join("a"), b"content").unwrap();
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    let receive = ["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"];
    let mut receiver = Running::spawn(tidewire(&receive).arg(&into));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let sent = tidewire(&["send"]).arg(&from).arg(&link).output().unwrap();
    let said = String::from_utf8(sent.stderr).unwrap();
    assert_eq!((sent.status.code(), said.matches("hard links").count()), (Some(0), 1), "{said}");
    assert!(said.contains("2 files have"), "{said}");
    // Seven bytes are carried twice, and what packets cost beside them says nothing.
    assert!(!said.contains("overhead"), "{said}");
    receiver.end();
    assert_eq!(fs::read(into.join("from/b")).unwrap(), b"content");
}

#[test]
fn a_quota_is_told_at_both_ends_and_other_files_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let listen = ["receive", "--json", "--listen", "127.0.0.1:0", "--max-bytes", "1500B", "--max-files", "3", "--dir"];
    let mut receiver = Running::spawn(tidewire(&listen).arg(&into));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let send = |files: &[(&str, usize)]| {
        let mut command = tidewire(&["send", "--json"]);
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::write(&path, vec![b'x'; *bytes]).unwrap();
            command.arg(path);
        }
        let output = command.arg(&link).output().unwrap();
        let lines = schema::lines(&output.stdout);
        let refused = lines.iter().filter(|line| line["reason"] == "over quota");
        (output.status.code(), refused.map(|line| line["detail"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let (code, refused) = send(&[("a", 1000), ("b", 501), ("c", 400)]);
    assert_eq!((code, refused.len()), (Some(7), 1));
    assert!(refused[0].contains("501 more bytes than the 500 that are left of --max-bytes 1500"), "{refused:?}");
    let (code, refused) = send(&[("d", 0), ("e", 0)]);
    assert_eq!((code, refused.len()), (Some(7), 1));
    assert!(refused[0].contains("--max-files 3"), "{refused:?}");
    let mut names: Vec<_> = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    // The list of kept parts remains from the refused sessions: the same command continues when there is
    // room.
    assert_eq!(names, [".tidewire-parts", "a", "c", "d"]);
}

#[test]
fn issue_40_a_size_limit_is_the_reason_of_one_file_and_the_receiver_lives() {
    let folder = tempfile::tempdir().unwrap();
    let (into, big, small) = (folder.path().join("into"), folder.path().join("big"), folder.path().join("small"));
    fs::create_dir(&into).unwrap();
    fs::write(&big, vec![b'x'; 300_000]).unwrap();
    fs::write(&small, b"small").unwrap();
    let receive = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]);
    let mut command = std::process::Command::new("sh");
    // 100 blocks of 512 bytes, or of 1,024 where sh is bash.
    command.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(receive.get_program()).args(receive.get_args());
    let mut receiver = Running::spawn(command.arg(&into).env("TIDEWIRE_CONFIG", "/dev/null"));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let sent = tidewire(&["send", "--json"]).args([&big, &small]).arg(&link).output().unwrap();
    let lines = schema::lines(&sent.stdout);
    assert_eq!(sent.status.code(), Some(7), "{lines:?}");
    let failed: Vec<_> = lines.iter().filter(|line| line["ok"] == false).collect();
    assert!(failed.len() == 1 && failed[0]["path"] == "big", "{lines:?}");
    assert!(failed[0]["detail"].as_str().unwrap().contains("ulimit -f"), "{failed:?}");
    assert_eq!(fs::read(into.join("small")).unwrap(), b"small");
    receiver.interrupt();
    assert_eq!(receiver.end().0, Some(130));
}

/// Starts a receiver, and another one on the same port whenever a sender has reached the last one, which is
/// killed then. Returns the link, and what ends this.
fn receivers_that_never_keep(folder: &Path, key: &Path) -> (String, impl FnOnce()) {
    let (folder, key) = (folder.to_owned(), key.to_owned());
    let start = move |listen: &str| {
        let mut command = tidewire(&["receive", "--json", "--listen", listen, "--dir"]);
        let mut receiver = Running::spawn(command.arg(&folder).arg("--key").arg(&key));
        let link = receiver.line()["link"].as_str().unwrap().to_owned();
        (receiver, link)
    };
    let (first, link) = start("127.0.0.1:0");
    let address = crate::process::address(&link);
    let current = Arc::new(Mutex::new(Some(first.child.id())));
    let of_thread = Arc::clone(&current);
    let thread = std::thread::spawn(move || {
        let mut receiver = first;
        while receiver.text().contains("connected") {
            drop(receiver);
            let mut current = of_thread.lock().unwrap();
            if current.is_none() {
                return;
            }
            (receiver, _) = start(&address);
            *current = Some(receiver.child.id());
        }
    });
    let end = move || {
        if let Some(id) = current.lock().unwrap().take().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(id, Signal::KILL);
        }
        thread.join().unwrap();
    };
    (link, end)
}

#[test]
#[ignore = "slow: waits in real time"]
fn issue_40_a_sender_ends_when_no_connection_brings_the_receiver_further() {
    let folder = tempfile::tempdir().unwrap();
    let (key, file, into) = (folder.path().join("key"), folder.path().join("f"), folder.path().join("into"));
    assert!(tidewire(&["keygen", "-o"]).arg(&key).output().unwrap().status.success());
    fs::create_dir(&into).unwrap();
    fs::write(&file, vec![b'x'; 3_000_000]).unwrap();
    let (link, end) = receivers_that_never_keep(&into, &key);
    let sent = tidewire(&["send", "--json", "--max-rate", "1mbit"]).arg(&file).arg(&link).output().unwrap();
    end();
    let lines = schema::lines(&sent.stdout);
    assert_eq!(sent.status.code(), Some(5), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line["event"] == "connected").count(), 8, "{lines:?}");
    let told = |text: &str| lines.iter().any(|line| line["message"].as_str().is_some_and(|said| said.contains(text)));
    assert!(told("8 connections were lost and the receiver kept nothing more"), "{lines:?}");
    assert_eq!(lines.last().unwrap()["event"], "summary");
}

#[test]
#[ignore = "slow: waits in real time"]
fn issue_13_a_sender_with_another_key_cannot_take_over_an_upload() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let [(server, _), (ann, ann_public), (eve, eve_public)] =
        ["server", "ann", "eve"].map(|name| pair(folder.path(), name));
    let peers = folder.path().join("peers");
    fs::write(&peers, format!("{ann_public}\n{eve_public}\n")).unwrap();
    let mut command = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]);
    command.arg(&into).arg("--key").arg(&server).arg("--authorized-keys").arg(&peers);
    let mut receiver = Running::spawn(&mut command);
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let source = folder.path().join("f");
    let mut content = vec![0; 12 << 20];
    blake3::Hasher::new().update(b"f").finalize_xof().fill(&mut content);
    fs::write(&source, &content).unwrap();
    let upload = |key: &Path, rate: &str| {
        let mut command = tidewire(&["send", "--json", "--max-rate", rate, "--key"]);
        Running::spawn(command.arg(key).arg(&source).arg(&link))
    };
    let mut slow = upload(&ann, "20mbit");
    slow.wait_for("progress");
    // The same file in the same job has the same source and job keys.
    let (code, lines) = upload(&eve, "400mbit").end();
    assert_eq!(code, Some(0), "{lines:?}");
    let (code, lines) = slow.end();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(fs::read(into.join("f")).unwrap(), content);
}

#[test]
fn a_request_to_end_is_heard_while_a_file_of_holes_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("huge"), folder.path().join("into"));
    fs::create_dir(&into).unwrap();
    // Hashing it takes five minutes, and each 256 KiB of it are nine bytes on the wire.
    fs::File::create(&from).unwrap().set_len(1 << 40).unwrap();
    let mut receiver = Running::spawn(tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(&into));
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let mut sender = Running::spawn(tidewire(&["send", "--json"]).arg(&from).arg(&link));
    // Both write their progress meanwhile.
    sender.wait_for("progress");
    receiver.wait_for("progress");
    let asked = std::time::Instant::now();
    sender.interrupt();
    assert_eq!(sender.end().0, Some(130));
    receiver.interrupt();
    assert_eq!(receiver.end().0, Some(130));
    assert!(asked.elapsed().as_secs() < 60, "{:?}", asked.elapsed());
}
