//! The dissector of `packaging/wireshark` in tshark, on captures of the simulator and of the lab.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{Running, lab, tidewire};
use crate::{needs, repository, schema};

/// What tshark prints with the dissector and these arguments. Fails if a script failed.
fn tshark(capture: &Path, arguments: &[&str]) -> String {
    let script = format!("lua_script:{}", repository("packaging/wireshark/tidewire.lua"));
    let output = Command::new("tshark").args(["-X", &script, "-r"]).arg(capture).args(arguments).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    assert!(!out.contains("Lua Error"), "{}", out.lines().find(|line| line.contains("Lua Error")).unwrap());
    out.into_owned()
}

/// The values of fields, one packet a line. Values of one packet are joined by commas.
fn fields(capture: &Path, keylog: Option<&Path>, names: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-Y".to_owned(), "tidewire".into(), "-T".into(), "fields".into()];
    arguments
        .extend(keylog.map(|path| ["-o".into(), format!("tidewire.keylog:{}", path.display())]).into_iter().flatten());
    arguments.extend(names.iter().flat_map(|name| ["-e".to_owned(), format!("tidewire.{name}")]));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    tshark(capture, &arguments).lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

const LINK: &str = "seed = 7\n[link]\nrate = \"25mbit\"\nrtt = \"20ms\"\n[forward]\nloss = \"gilbert:5%,4\"\n";

/// A capture of the simulator, its key log, and the summary of the run.
fn simulated(folder: &Path, bytes: &str) -> (std::path::PathBuf, std::path::PathBuf, Value) {
    let [scenario, pcap, keys] = ["link.toml", "run.pcap", "keys"].map(|name| folder.join(name));
    fs::write(&scenario, LINK).unwrap();
    let paths = [&scenario, &pcap, &keys].map(|path| path.to_str().unwrap());
    let arguments = ["sim", "--json", paths[0], "--bytes", bytes, "--pcap", paths[1], "--keylog", paths[2]];
    let output = lab(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = schema::lines(&output.stdout).pop().unwrap();
    (pcap, keys, summary)
}

/// Types of the frames of a packet, from the field `frame`.
fn types(frames: &str) -> impl Iterator<Item = u64> + '_ {
    frames.split(',').filter_map(|frame| frame.parse().ok())
}

/// How often frames of these types occur in packets of the initiator.
fn count(packets: &[Vec<String>], wanted: &[u64]) -> u64 {
    let of_initiator = packets.iter().filter(|packet| packet[0] == "initiator");
    of_initiator.flat_map(|packet| types(&packet[1])).filter(|frame| wanted.contains(frame)).count() as u64
}

/// The frames of the initiator are those that its summary counts. A source symbol that is sent again answers
/// feedback.
fn check_counts(packets: &[Vec<String>], summary: &Value) {
    for (name, frames) in [("source", &[0x10][..]), ("repair", &[0x12][..]), ("feedback_repair", &[0x11, 0x13][..])] {
        assert_eq!(count(packets, frames), summary["packets"][name].as_u64().unwrap(), "{name}: {summary}");
    }
}

/// Each FEEDBACK of the responder says when the newest packet came, and time does not go back.
fn check_arrivals(packets: &[Vec<String>]) {
    let feedback = packets.iter().filter(|packet| packet[0] == "responder" && types(&packet[1]).any(|kind| kind == 2));
    let arrivals: Vec<u32> = feedback.map(|packet| packet[2].parse().unwrap()).collect();
    assert!(arrivals.len() > 10 && arrivals.is_sorted() && arrivals[0] < arrivals[10], "{arrivals:?}");
}

#[test]
#[ignore = "needs tshark"]
fn with_the_key_log_every_packet_and_every_byte_of_a_run_is_shown() {
    needs("tshark");
    let folder = tempfile::tempdir().unwrap();
    let (pcap, keys, summary) = simulated(folder.path(), "300kB");
    let names = ["sealer", "frame", "number", "malformed", "length", "data", "symbol_frame", "long"];
    let packets = fields(&pcap, Some(&keys), &names);
    assert!(packets.iter().all(|packet| packet[3].is_empty()), "a packet is malformed");
    check_counts(&packets, &summary);
    assert!(count(&packets, &[0x13]) > 0);
    // Numbers of the initiator are never used twice.
    let short: Vec<_> = packets.iter().filter(|packet| packet[0] == "initiator").collect();
    let numbers: BTreeSet<_> = short.iter().map(|packet| packet[2].parse::<u64>().unwrap()).collect();
    assert_eq!(numbers.len(), short.len());
    check_arrivals(&fields(&pcap, Some(&keys), &["sealer", "frame", "newest_arrival"]));
    // Two HELLOs at least, and a REPLY.
    assert!(packets.iter().filter(|packet| packet[0].is_empty()).count() >= 3);
    let stream = fields(&pcap, Some(&keys), &["frame", "data"]);
    let first = stream.iter().filter(|packet| types(&packet[0]).any(|frame| frame == 0x10));
    let carried: usize = first.flat_map(|packet| packet[1].split(',').next_back()).map(|data| data.len() / 2).sum();
    assert!((300_000..301_000).contains(&carried), "{carried} bytes");
}

#[test]
#[ignore = "needs tshark"]
fn without_keys_headers_are_shown_and_frames_are_not() {
    needs("tshark");
    let folder = tempfile::tempdir().unwrap();
    let (pcap, ..) = simulated(folder.path(), "30kB");
    let packets = fields(&pcap, None, &["long", "type", "destination", "source", "sealed", "frame", "sealer"]);
    assert!(packets.iter().all(|packet| packet[5].is_empty()));
    let types: BTreeSet<_> = packets.iter().map(|packet| packet[1].as_str()).collect();
    assert_eq!(types, BTreeSet::from(["", "0", "1"]));
    let reply = packets.iter().find(|packet| packet[1] == "1").unwrap();
    for packet in packets.iter().filter(|packet| packet[1].is_empty()) {
        let to_responder = packet[2] == reply[3];
        let expected = if to_responder { "initiator" } else { "responder" };
        assert!((packet[2] == reply[2] || to_responder) && packet[6] == expected, "{packet:?}");
        assert!(!packet[4].is_empty(), "{packet:?}");
    }
}

#[test]
#[ignore = "needs tshark"]
fn changed_bytes_and_wrong_keys_are_malformed_and_no_script_fails() {
    needs("tshark");
    let folder = tempfile::tempdir().unwrap();
    let (pcap, keys, _) = simulated(folder.path(), "20kB");
    let whole = fs::read(&pcap).unwrap();
    let changed = folder.path().join("changed.pcap");
    // Changes of the header, of the bytes from which header protection comes, and of frames alone.
    for (from, step) in [(0, 15), (13, 14), (30, 3)] {
        let (mut bytes, mut at) = (whole.clone(), 24);
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            let payload = &mut bytes[at + 16 + 28..at + 16 + len];
            payload.iter_mut().skip(from).step_by(step).for_each(|byte| *byte ^= 0x95);
            at += 16 + len;
        }
        fs::write(&changed, &bytes).unwrap();
        tshark(&changed, &["-V", "-o", &format!("tidewire.keylog:{}", keys.display())]);
    }
    // Keys of another session under the ids of this one.
    let text = fs::read_to_string(&keys).unwrap().replace(" 0 aes-256-gcm ", " 0 chacha20-poly1305 ");
    let text = format!("{text}\nTIDEWIRE_KEY 00 11 I x\nTIDEWIRE_KEY\n\u{fffd}\n{}", "f".repeat(100_000));
    fs::write(&keys, text).unwrap();
    let packets = fields(&pcap, Some(&keys), &["sealer", "frame", "malformed"]);
    // A wrong key phase has no key; nearly all others are malformed.
    let short: Vec<_> = packets.iter().filter(|packet| !packet[0].is_empty()).collect();
    let readable = short.iter().filter(|packet| !packet[1].is_empty() && packet[2].is_empty()).count();
    assert!(readable * 20 < short.len(), "{readable} of {}", short.len());
}

#[test]
#[ignore = "needs tshark"]
fn the_ciphers_give_the_values_of_their_specifications() {
    needs("tshark");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pcap");
    fs::write(&empty, [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 8], &[0xff, 0xff, 0, 0, 101, 0, 0, 0]].concat())
        .unwrap();
    let script = repository("packaging/wireshark/test_ciphers.lua");
    let output =
        Command::new("tshark").args(["-X", &format!("lua_script:{script}"), "-r"]).arg(&empty).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "6 vectors hold", "{}", String::from_utf8_lossy(&output.stderr));
}

/// The command on a host of the lab.
fn on(host: &str, arguments: &[&str]) -> Command {
    let plain = tidewire(arguments);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(plain.get_program()).args(plain.get_args());
    command.env_remove("TIDEWIRE_LINK").env("TIDEWIRE_CONFIG", "/dev/null");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether this machine and user can have a lab. If not, prints why.
fn needs_lab() {
    let tun = || fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    let ip = || Command::new("ip").arg("netns").output().is_ok_and(|output| output.status.success());
    tidewire_testing::needs("root, /dev/net/tun, iproute2", rustix::process::geteuid().is_root() && tun() && ip());
}

/// Sends a datagram behind everything else, and waits until it is in the capture: what dumpcap has not read
/// when it is stopped is lost.
fn wait_for_marker(host: &str, address: &str, pcap: &Path) {
    let marker = "the end of the capture";
    let send = format!("echo {marker} > /dev/udp/{address}/9");
    assert!(Command::new("ip").args(["netns", "exec", host, "bash", "-c", &send]).status().unwrap().success());
    let begun = Instant::now();
    while !fs::read(pcap).unwrap().windows(marker.len()).any(|bytes| bytes == marker.as_bytes()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "dumpcap does not write the last packet");
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs root, tshark and dumpcap"]
fn a_capture_of_the_lab_with_the_key_log_of_a_job_shows_what_the_job_sent() {
    needs("tshark");
    needs("dumpcap");
    needs_lab();
    let folder = tempfile::tempdir().unwrap();
    let [scenario, pcap, keys] = ["link.toml", "lab.pcap", "keys"].map(|name| folder.path().join(name));
    fs::write(&scenario, LINK).unwrap();
    let mut stage = Running::spawn(&mut lab(&["up", "--json", scenario.to_str().unwrap()]));
    let hosts = stage.line();
    let [near, far, address] = ["near", "far", "far_address"].map(|name| hosts[name].as_str().unwrap().to_owned());

    let mut dumpcap = Command::new("ip");
    dumpcap.args(["netns", "exec", &near, "dumpcap", "-q", "-i", "any", "-f", "udp", "-w"]).arg(&pcap);
    let mut dumpcap = dumpcap.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Kept to the end, so that dumpcap can write there.
    let mut errors = BufReader::new(dumpcap.stderr.take().unwrap()).lines().map_while(Result::ok);
    // It names its file when it captures.
    assert!(errors.any(|line| line.starts_with("File:")), "dumpcap does not capture");

    let listen = format!("{address}:7700");
    let mut server = Running::spawn(&mut on(&far, &["bench", "-s", "-1", "--json", "--listen", &listen]));
    let link = server.wait_for("link")["link"].as_str().unwrap().to_owned();
    let load = ["bench", "--json", "-c", &link, "-b", "2mbit", "-t", "1s"];
    let keylog = ["--keylog", keys.to_str().unwrap()];
    let refused = on(&near, &[&load[..], &keylog].concat()).output().unwrap();
    assert!(refused.status.code() == Some(2) && !keys.exists(), "a key log was written without --insecure-keylog");
    let client = on(&near, &[&load[..], &keylog, &["--insecure-keylog"]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&client.stderr).into_owned();
    assert!(client.status.success() && said.contains("who reads this file reads and forges all traffic"), "{said}");
    let summary = schema::lines(&client.stdout).pop().unwrap();
    server.end();
    wait_for_marker(&near, &address, &pcap);
    kill_process(Pid::from_child(&dumpcap), Signal::INT).unwrap();
    assert!(dumpcap.wait().unwrap().success());

    let packets = fields(&pcap, Some(&keys), &["sealer", "frame", "malformed"]);
    assert!(packets.iter().all(|packet| packet[2].is_empty()), "a packet is malformed");
    check_counts(&packets, &summary);
    // Fields of symbols too: the lane of streams, and streams.
    let inside = fields(&pcap, Some(&keys), &["symbol_frame", "stream"]);
    assert!(inside.iter().any(|packet| !packet[0].is_empty() && !packet[1].is_empty()));
}
