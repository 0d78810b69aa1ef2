//! Ends and a relay as processes: files, pipes and records arrive over two hops, each behind a lossy link.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tidewire_proxy::Proxy;

use crate::keys::pair;
use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

/// A listener behind a relay: both processes, the link for `--via`, and that of the listener.
struct Stage {
    listener: Running,
    relay: Running,
    _links: Vec<Proxy>,
    via: String,
    link: String,
}

/// Starts `listener`, and a relay before it with `options`. `settings` are those of the link before the relay
/// and of that behind it; without any, the hops have no emulated link.
fn stage(listener: &[&str], options: &[&str], settings: &[&str]) -> Stage {
    let mut listener = Running::start(&[listener, &["--json", "--relayed", "--listen", "127.0.0.1:0"]].concat());
    let text = |line: Value| line["link"].as_str().unwrap().to_owned();
    let (mut hop, link) = (text(listener.wait_for("hop_link")), text(listener.wait_for("link")));
    let mut links = Vec::new();
    if !settings.is_empty() {
        let (proxy, lossy) = lossy_link(&hop, settings);
        hop = lossy;
        links.push(proxy);
    }
    let mut relay =
        Running::start(&[&["relay", "--json", "--listen", "127.0.0.1:0", "--to", &hop][..], options].concat());
    let mut via = text(relay.wait_for("link"));
    if !settings.is_empty() {
        let (proxy, lossy) = lossy_link(&via, settings);
        via = lossy;
        links.push(proxy);
    }
    Stage { listener, relay, _links: links, via, link }
}

/// Ends the relay, and returns its last counts.
fn counts(relay: Running) -> Value {
    relay.interrupt();
    let (code, lines) = relay.end();
    assert_eq!(code, Some(130));
    lines.into_iter().rfind(|line| line["event"] == "relay").unwrap()
}

fn content(path: &Path, bytes: usize) {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    fs::write(path, content).unwrap();
}

#[test]
fn a_file_crosses_a_relay_between_two_hops_of_ten_percent_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    content(&file, 4_000_000);
    let listener = ["receive", "--once", "--dir", into.to_str().unwrap()];
    let lossy = ["--rate", "50mbit", "--rtt", "10ms", "--loss", "10%", "--back-loss", "10%"];
    let Stage { listener, relay, _links, via, link } = stage(&listener, &[], &lossy);
    let sent = tidewire(&["send", "--json", "--via", &via]).arg(&file).arg(&link).output().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    let summary = schema::lines(&sent.stdout).pop().unwrap();
    assert_eq!((&summary["event"], &summary["bytes"]), (&"summary".into(), &4_000_000.into()));
    assert_eq!(listener.end().0, Some(0));
    assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap(), "the bytes differ");
    let counts = counts(relay);
    let number = |key: &str| counts[key].as_u64().unwrap();
    assert!(number("innovative") > 3_600, "{counts}");
    // The hop repairs what its link loses: a packet for each row, and a ninth more.
    assert!(number("sent") > number("innovative"), "{counts}");
    assert!(number("sent") < number("innovative") * 13 / 10, "{counts}");
    let dropped = &counts["dropped"];
    assert_eq!([&dropped["malformed"], &dropped["zero"], &dropped["misplaced"]], [0, 0, 0], "{counts}");
    assert_eq!(counts["suspects"], 0);
}

#[test]
fn records_and_lanes_as_wide_as_those_of_pipeline_cross_a_relay() {
    let Stage { listener, relay, via, link, .. } = stage(&["bench", "-s", "-1"], &["--redundancy", "1.25"], &[]);
    let measure = ["bench", "--json", "-t", "1", "-b", "2mbit", "--profile", "pipeline:16,1.25", "--via", &via, "-c"];
    let measured = tidewire(&measure).arg(&link).output().unwrap();
    assert_eq!(measured.status.code(), Some(0), "{}", String::from_utf8_lossy(&measured.stderr));
    assert_eq!(listener.end().0, Some(0));
    let counts = counts(relay);
    let (sent, innovative) = (counts["sent"].as_u64().unwrap(), counts["innovative"].as_u64().unwrap());
    assert!(innovative > 150 && sent > innovative, "{counts}");
}

#[test]
fn hops_and_ends_with_key_pairs_and_their_lists() {
    let folder = tempfile::tempdir().unwrap();
    let (into, file) = (folder.path().join("into"), folder.path().join("file"));
    content(&file, 100_000);
    let keys = ["receiver", "hop", "relay", "sender"].map(|name| pair(folder.path(), name));
    let [receiver, hop, middle, sender] = &keys;
    let list = |name: &str, key: &str| {
        let path = folder.path().join(name);
        fs::write(&path, key).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (senders, relays) = (list("senders", &sender.1), list("relays", &middle.1));
    let key = |pair: &(std::path::PathBuf, String)| pair.0.to_str().unwrap().to_owned();
    let listener = [
        &["receive", "--once", "--dir", into.to_str().unwrap()][..],
        &["--key", &key(receiver), "--authorized-keys", &senders],
        &["--hop-key", &key(hop), "--authorized-relays", &relays],
    ];
    let options = ["--key", &key(middle), "--authorized-keys", &senders];
    let Stage { listener, relay, via, link, .. } = stage(&listener.concat(), &options, &[]);
    assert!(via.ends_with(&middle.1) && link.ends_with(&receiver.1), "{via} {link}");
    let send = ["send", "--quiet", "--key", &key(sender), "--via", &via];
    assert!(tidewire(&send).arg(&file).arg(&link).status().unwrap().success());
    assert_eq!(listener.end().0, Some(0));
    assert_eq!(counts(relay)["dropped"]["malformed"], 0);
}

#[test]
fn what_cannot_work_ends_with_2_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let secret = secret.to_str().unwrap();
    assert!(tidewire(&["keygen", "-o", secret]).status().unwrap().success());
    let hop = format!("tidewire://127.0.0.1:1/#{}", fs::read_to_string(secret).unwrap().trim());
    let other = folder.path().join("other");
    assert!(tidewire(&["keygen", "-o", other.to_str().unwrap()]).status().unwrap().success());
    let ends = format!("tidewire://127.0.0.1:1/#{}", fs::read_to_string(&other).unwrap().trim());
    let listen = ["--listen", "127.0.0.1:0"];
    for (arguments, said) in [
        (&["relay"][..], "--to"),
        (&["relay", "--to", "tidewire://h:1/"], "no #SECRET"),
        (&["relay", "--to", &hop, "--redundancy", "0.9"], "from 1 to 2"),
        (&["relay", "--to", &hop, "--generations", "0"], "4..=128"),
        (&["relay", "--to", &hop, "--relayed"], "leave --relayed out"),
        (&["send", secret, &hop, "--via", &hop], "the relay could read everything"),
        (&["send", secret, "host:folder", "--via", &hop], "--via needs a link"),
        (&["bench", "-c", &ends, "--via", &hop, "--profile", "block:32,8"], "pipeline:G,R"),
        (&["bench", "-c", &ends, "--via", &hop, "--profile", "pipeline:0,1.25"], "from 1 to 64"),
        (&["bench", "-c", &ends, "--via", &hop, "--profile", "pipeline:16,0.5"], "R from 1 to 4"),
        (
            &["receive", "--relayed", "--key", secret, "--hop-key", secret, listen[0], listen[1]],
            "could read everything",
        ),
        (&["receive", "--hop-key", secret], "--relayed"),
    ] {
        let refused = tidewire(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}
