//! The links that a listener prints: one where there is a default route, else one for each address.
#![cfg(target_os = "linux")]

use crate::process::{Running, tidewire};

/// Runs `receive` for people in a namespace of its own after `setup`, a line of a shell. Returns the lines of
/// its stdout, which must be `count`.
fn printed(setup: &str, count: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let plain = tidewire(&["receive", "--listen", "0.0.0.0:7700", "--dir", folder.path().to_str().unwrap()]);
    let words = [plain.get_program()].into_iter().chain(plain.get_args()).map(|word| word.to_str().unwrap());
    let line = format!("{setup}\nexec {}", words.collect::<Vec<_>>().join(" "));
    let mut command = std::process::Command::new("unshare");
    command.args(["--net", "sh", "-ec", &line]).env("TIDEWIRE_CONFIG", "/dev/null");
    let mut running = Running::spawn(&mut command);
    let links = (0..count).map(|_| running.text()).collect();
    running.interrupt();
    let (code, rest) = running.end_as_text();
    assert_eq!((code, String::from_utf8_lossy(&rest)), (Some(130), "".into()));
    links
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_machine_without_a_default_route_prints_a_link_for_each_address() {
    tidewire_testing::needs("root", rustix::process::geteuid().is_root());
    let lo = "ip link set lo up";
    let pair = "ip link add tw-a type veth peer name tw-b; ip link set tw-a up; ip link set tw-b up; \
                ip addr add 10.9.0.1/24 dev tw-a; ip addr add 10.8.0.1/24 dev tw-b";
    let begins = |links: &[String], wanted: &[&str]| {
        let hosts: Vec<_> = links.iter().map(|link| link.split("/#").next().unwrap()).collect();
        assert_eq!(hosts, wanted);
    };
    begins(&printed(lo, 1), &["tidewire://127.0.0.1:7700"]);
    begins(&printed(&format!("{lo}; {pair}"), 2), &["tidewire://10.8.0.1:7700", "tidewire://10.9.0.1:7700"]);
    let routed = format!("{lo}; {pair}; ip route add default via 10.9.0.2");
    begins(&printed(&routed, 1), &["tidewire://10.9.0.1:7700"]);
}
