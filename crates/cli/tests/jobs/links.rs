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

/// A wildcard of `serve` covers no service of its own machine, by whichever of its addresses, and a rule that
/// names one does.
#[test]
#[ignore = "needs root: network namespaces"]
fn a_wildcard_reaches_no_address_of_the_far_machine_itself() {
    tidewire_testing::needs("root", rustix::process::geteuid().is_root());
    let folder = tempfile::tempdir().unwrap();
    let tidewire = tidewire(&[]).get_program().to_str().unwrap().to_owned();
    let forwarded = |rule: &str, target: &str| {
        let script = format!(
            "ip link set lo up; ip addr add 10.9.0.1/32 dev lo; ip addr add 10.9.0.2/32 dev lo
             ip route add local 10.7.0.0/24 dev lo
             rm -f link; {tidewire} serve --listen 127.0.0.1:7700 --allow '{rule}' > link & serve=$!
             until grep -q tidewire: link; do sleep 0.02; done
             code=0; timeout 20 {tidewire} forward -W {target} \"$(grep -o 'tidewire:.*' link)\" </dev/null || code=$?
             kill $serve; exit $code"
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]).env("TIDEWIRE_CONFIG", "/dev/null").current_dir(folder.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for target in ["10.9.0.1:80", "10.9.0.2:80", "10.7.0.9:80", "127.0.0.1:80"] {
        let (code, said) = forwarded("*:*", target);
        assert!(
            code == Some(4) && said.contains("a wildcard covers no address of the far machine"),
            "{target}: {said}"
        );
    }
    // Nobody listens there, so the target refuses, and not the rules.
    let (code, said) = forwarded("10.9.0.2:80", "10.9.0.2:80");
    assert!(code == Some(3) && !said.contains("wildcard"), "{code:?} {said}");
}

/// A path below 1,228 bytes: the loopback device here, whose system refuses what is longer. Every verb ends
/// with the size and what to do.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_a_path_that_is_too_narrow_is_named() {
    tidewire_testing::needs("root", rustix::process::geteuid().is_root());
    let folder = tempfile::tempdir().unwrap();
    let tidewire = tidewire(&[]).get_program().to_str().unwrap().to_owned();
    let run = |mtu: u32, listener: &str, verb: &str| {
        let script = format!(
            "ip link set lo up; ip link set lo mtu {mtu}; rm -rf link in; head -c 100000 /dev/zero > file
             {tidewire} {listener} --listen 127.0.0.1:7700 > link & listener=$!
             until grep -q tidewire: link; do sleep 0.02; done; link=$(grep -o 'tidewire:.*' link)
             code=0; timeout 60 {tidewire} {verb} || code=$?
             kill $listener; exit $code"
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]).env("TIDEWIRE_CONFIG", "/dev/null").current_dir(folder.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let receive = "receive --dir in";
    let serve = "serve --allow 127.0.0.1:80";
    let bench = "bench -s";
    let (code, said) = run(1_228, receive, "send file \"$link\"");
    assert_eq!(code, Some(0), "{said}");
    for mtu in [1_227, 1_000, 576] {
        for (listener, verb, exits) in [
            // The cause may come before the transfer begins.
            (receive, "send file \"$link\"", &[3, 5][..]),
            (serve, "forward -L 0:127.0.0.1:80 \"$link\"", &[3]),
            (bench, "probe \"$link\"", &[3]),
            (bench, "bench -c \"$link\" -t 5", &[3]),
        ] {
            let (code, said) = run(mtu, listener, verb);
            assert!(code.is_some_and(|code| exits.contains(&code)), "{mtu}, {verb}: {code:?} {said}");
            assert!(said.contains("raise the MTU"), "{mtu}, {verb}: {said}");
        }
    }
}
