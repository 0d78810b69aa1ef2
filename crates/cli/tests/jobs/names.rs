//! Names of hosts while the system's resolver does not answer.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::process::{Running, tidewire};

/// Runs a program where every datagram to the name server vanishes, with the files `$1` and `$2` as
/// resolv.conf and nsswitch.conf.
const WITHOUT_ANSWERS: &str = "ip link set lo up && ip link add near type veth peer name far && \
     ip addr add 198.18.0.1/24 dev near && ip link set near up && ip link set far up && \
     ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev near nud permanent && \
     mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/nsswitch.conf && shift 2 && exec \"$@\"";

/// Whether the process has become `tidewire`, and has a handler for Ctrl-C (`SigCgt` of proc_pid_status(5)).
fn hears_an_interrupt(running: &Running) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap_or_default();
    if !status.starts_with("Name:\ttidewire\n") {
        return false;
    }
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

/// A verb in a namespace of its own, whose resolver asks for hours.
fn without_answers(folder: &Path, arguments: &[&str]) -> Running {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let resolver = file("resolv.conf", "nameserver 198.18.0.2\noptions timeout:30 attempts:5\n");
    let order = file("nsswitch.conf", "hosts: dns\n");
    let plain = tidewire(arguments);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", WITHOUT_ANSWERS, "sh"]).arg(resolver).arg(order);
    command.arg(plain.get_program()).args(plain.get_args());
    command.env_remove("TIDEWIRE_LINK").env("TIDEWIRE_CONFIG", "/dev/null");
    Running::spawn(&mut command)
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn ctrl_c_ends_every_verb_while_a_name_is_being_resolved() {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    tidewire_testing::needs(
        "root, unshare and iproute2",
        rustix::process::geteuid().is_root() && ["unshare", "ip"].into_iter().all(has),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let secret = tidewire(&["keygen"]).output().unwrap().stdout;
    let link = format!("tidewire://slow.example:7700/#{}", String::from_utf8(secret).unwrap().trim());
    let local = "tidewire://127.0.0.1:0";
    for arguments in [
        &["send", file, &link][..],
        &["forward", "-L", "0:127.0.0.1:80", &link],
        &["forward", "-W", "127.0.0.1:80", &link],
        &["tunnel", "up", "--address", "10.55.0.1/24", &link],
        &["pipe", &link],
        &["live", "udp://127.0.0.1:0", &link],
        &["live", local, "udp://slow.example:5000"],
        &["bench", "-c", &link],
        &["probe", &link],
        &["relay", "--listen", "127.0.0.1:0", "--to", &link],
    ] {
        let mut running = without_answers(folder.path(), arguments);
        while !hears_an_interrupt(&running) {
            assert_eq!(running.child.try_wait().unwrap(), None, "{arguments:?}");
            thread::sleep(Duration::from_millis(5));
        }
        running.interrupt();
        assert_eq!(running.end_as_text().0, Some(130), "{arguments:?}");
    }
}
