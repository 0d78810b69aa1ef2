//! Key pairs as people use them: made, listed, refused. And a server that is killed and started again.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::process::{Running, address, tidewire};

/// Makes a key pair in `folder`. Returns the file and the public key.
pub fn pair(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    let made = tidewire(&["keygen", "--pair", "-o", path.to_str().unwrap()]).output().unwrap();
    assert!(made.status.success());
    (path, String::from_utf8(made.stdout).unwrap().trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn keygen_makes_pairs_and_tells_their_public_half() {
    let folder = tempfile::tempdir().unwrap();
    let (path, public) = pair(folder.path(), "key");
    assert!(public.starts_with("twp1") && public.len() == 60, "{public}");
    let private = fs::read_to_string(&path).unwrap();
    assert!(private.starts_with("twk1") && private.trim().len() == 60);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = tidewire(&["keygen", "--public", text(&path)]).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap().trim(), public);
    assert_eq!(tidewire(&["keygen", "--pair", "-o", text(&path)]).status().unwrap().code(), Some(7));
    assert_eq!(fs::read_to_string(&path).unwrap(), private);
}

#[test]
fn wrong_key_files_end_with_2_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, public) = pair(folder.path(), "key");
    let (secret, peers) = (folder.path().join("secret"), folder.path().join("peers"));
    assert!(tidewire(&["keygen", "-o", text(&secret)]).status().unwrap().success());
    let link = format!("tidewire://127.0.0.1:1/#{public}");
    let private = fs::read_to_string(&path).unwrap();
    for (peers_text, arguments, said) in [
        ("", &["receive", "--key", text(&path)][..], "--authorized-keys FILE"),
        ("", &["receive", "--authorized-keys", text(&peers)], "--key"),
        ("", &["receive", "--key", text(&secret), "--authorized-keys", text(&peers)], "--key"),
        ("# one\ntwp1abc ann\n", &["receive", "--key", text(&path), "--authorized-keys", text(&peers)], "peers:2: "),
        ("", &["forward", "-L", "0:web:80", &link], "--key"),
        ("", &["forward", "-L", "0:web:80", &link, "--key", text(&secret)], "holds a secret"),
        (&public, &["forward", "-L", "0:web:80", &link, "--key", text(&peers)], "holds a public key"),
        ("", &["keygen", "--public", text(&secret)], "has no public key"),
        (&private[..20], &["keygen", "--public", text(&peers)], "56 letters"),
    ] {
        fs::write(&peers, peers_text).unwrap();
        let refused = tidewire(arguments).output().unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said) && !stderr.contains(&private[4..20]), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_key_file_that_others_can_read_is_named_with_the_command_that_mends_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = pair(folder.path(), "key");
    for (mode, warned) in [(0o600, false), (0o644, true), (0o620, true)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let output = tidewire(&["keygen", "--public", text(&path)]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains(&format!("chmod 600 '{}'", text(&path))), warned, "{mode:o}: {said}");
    }
}

#[test]
fn a_listed_key_comes_in_and_another_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (server_key, server_public) = pair(folder.path(), "server");
    let (ann, ann_public) = pair(folder.path(), "ann");
    let (eve, eve_public) = pair(folder.path(), "eve");
    let peers = folder.path().join("peers");
    fs::write(&peers, format!("# may come in\n{ann_public} ann\n")).unwrap();
    let (source, into) = (folder.path().join("tide.txt"), folder.path().join("into"));
    fs::write(&source, "the tide is in").unwrap();
    fs::create_dir(&into).unwrap();
    let keys = ["--key", text(&server_key), "--authorized-keys", text(&peers)];
    let listen = ["receive", "--json", "--listen", "127.0.0.1:0", "--dir", text(&into)];
    let mut server = Running::start(&[&listen[..], &keys].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    assert!(link.ends_with(&format!("#{server_public}")), "{link}");

    let mut refused = tidewire(&["send", text(&source), &link, "--key", text(&eve)]).spawn().unwrap();
    let told = server.wait_for("refused");
    assert_eq!(told["key"], eve_public.as_str());
    // It would repeat its HELLO for half a minute.
    refused.kill().unwrap();
    refused.wait().unwrap();

    assert!(tidewire(&["send", text(&source), &link, "--key", text(&ann)]).status().unwrap().success());
    assert_eq!(fs::read_to_string(into.join("tide.txt")).unwrap(), "the tide is in");
}

/// A change of the list counts at once: a new client that is already asking gets in, and a removed client is
/// cut off.
#[test]
#[ignore = "slow: waits in real time"]
fn a_list_that_changes_lets_in_and_cuts_off() {
    let folder = tempfile::tempdir().unwrap();
    let (server_key, _) = pair(folder.path(), "server");
    let (ann, ann_public) = pair(folder.path(), "ann");
    let peers = folder.path().join("peers");
    fs::write(&peers, "# nobody yet\n").unwrap();
    let keys = ["--key", text(&server_key), "--authorized-keys", text(&peers)];
    let serve = ["serve", "--json", "--allow", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let mut server = Running::start(&[&serve[..], &keys].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let mut client = Running::start(&["forward", "--json", "-L", "0:127.0.0.1:1", &link, "--key", text(&ann)]);
    assert_eq!(server.wait_for("refused")["key"], ann_public.as_str());
    fs::write(&peers, &ann_public).unwrap();
    client.wait_for("listening");
    server.wait_for("connected");
    fs::write(&peers, "# nobody any more\n").unwrap();
    // Both ends report how the connection ended.
    client.wait_for("summary");
    server.wait_for("summary");
}

/// S1 with processes: the server is killed while a connection is open and sends nothing. The client learns it
/// from the new server.
#[test]
fn a_killed_server_is_noticed_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (server_key, _) = pair(folder.path(), "server");
    let (own, own_public) = pair(folder.path(), "own");
    let peers = folder.path().join("peers");
    fs::write(&peers, own_public).unwrap();
    let keys = ["--key", text(&server_key), "--authorized-keys", text(&peers)];
    let serve = ["serve", "--json", "--allow", "127.0.0.1:1", "--listen"];
    let mut server = Running::start(&[&serve[..], &["127.0.0.1:0"], &keys].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let forward = ["forward", "--json", "-L", "0:127.0.0.1:1", &link, "--key", text(&own)];
    let mut client = tidewire(&forward).spawn().unwrap();
    let mut events = BufReader::new(client.stdout.take().unwrap()).lines();
    let listening = events.find_map(|line| {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["listening"].as_str().map(str::to_owned)
    });
    server.wait_for("connected");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut again = Running::start(&[&serve[..], &[&address(&link)], &keys].concat());
    // Data in flight lets the client notice the silence.
    let tcp = TcpStream::connect(listening.unwrap()).unwrap();
    again.wait_for("connected");
    drop(tcp);
    client.kill().unwrap();
    let mut said = String::new();
    client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    client.wait().unwrap();
    assert!(said.contains("the peer was restarted"), "{said}");
}
