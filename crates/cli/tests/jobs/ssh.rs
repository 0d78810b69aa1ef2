//! `send` and `forward` start their far end over ssh, and nothing of it is left when they end, however they
//! end (`docs/ssh.md`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::forward::{exchange, start_server};
use crate::process::sshd::Sshd;
use crate::process::{Running, tidewire, tidewire_that_hears_a_hang_up};

const HOST: &str = "root@127.0.0.1";
/// Longest wait for something that other processes do. Chosen: far longer than on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A verb whose far end is this build on `sshd`.
fn over(sshd: &Sshd, verb: &str, arguments: &[&str]) -> Command {
    over_program(sshd, &program(), verb, arguments)
}

fn over_program(sshd: &Sshd, remote: &str, verb: &str, arguments: &[&str]) -> Command {
    let mut command = tidewire_that_hears_a_hang_up(&[verb, "--ssh", &sshd.command(), "--remote", remote]);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// This build, as the far shell starts it: without the settings of this machine.
fn program() -> String {
    format!("env TIDEWIRE_CONFIG=/dev/null {}", assert_cmd::cargo::cargo_bin("tidewire").display())
}

/// The command lines of all processes that contain `mark`.
fn processes(mark: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(mark)).collect()
}

/// Waits until no process has `mark` in its command line.
fn wait_until_gone(mark: &str) {
    wait_until(&format!("{mark} is gone"), || processes(mark).is_empty());
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not yet: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Collects the command lines with `mark` while `run` lasts.
fn processes_during<T>(mark: &str, run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Ordering::Relaxed) {
                seen.extend(processes(mark));
            }
            seen
        });
        let ended = run();
        over.store(true, Ordering::Relaxed);
        (ended, looking.join().unwrap())
    })
}

/// Files below a folder, by their content.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap).filter(|step| step.file_type().is_file());
    files.map(|file| (file.path().strip_prefix(root).unwrap().to_owned(), fs::read(file.path()).unwrap())).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The failure of a verb: its exit code, and what it says.
fn failure(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), text(&output))
}

#[test]
#[ignore = "needs root and sshd"]
fn a_tree_goes_to_a_host_and_no_command_line_has_the_secret() {
    let sshd = Sshd::start();
    let from = tempfile::tempdir().unwrap();
    for n in 0..20_u32 {
        let file = from.path().join(format!("tree/{}/a file's {n}", n % 3));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, n.to_le_bytes().repeat(n as usize * 1000)).unwrap();
    }
    let into = sshd.path("into a folder");
    let mut send = over(&sshd, "send", &[from.path().join("tree").to_str().unwrap(), &format!("{HOST}:{into}")]);
    let (output, seen) = processes_during(&into, || send.output().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(tree(&Path::new(&into).join("tree")), tree(&from.path().join("tree")));
    wait_until_gone(&into);
    let has = |words: &[&str]| seen.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(&["send", "--remote"]) && has(&["receive", "--detached"]) && has(&["ssh", "-T"]), "{seen:?}");
    assert!(!has(&["tws1"]), "{seen:?}");
}

/// Settings for terminals: a command for each session, which would take the place of ours.
#[test]
#[ignore = "needs root and sshd"]
fn issue_40_a_remote_command_of_the_settings_is_set_aside() {
    let sshd = Sshd::start();
    let settings = sshd.path("settings");
    fs::write(&settings, "Host *\n  RemoteCommand tmux\n  RequestTTY yes\n").unwrap();
    let ssh = sshd.command().replace("-F none", &format!("-F {settings}"));
    let from = tempfile::tempdir().unwrap();
    let file = from.path().join("file");
    fs::write(&file, "content").unwrap();
    let into = sshd.path("into");
    let mut send = tidewire_that_hears_a_hang_up(&["send", "--ssh", &ssh, "--remote", &program()]);
    send.args([file.to_str().unwrap(), &format!("{HOST}:{into}")]).stdin(Stdio::null());
    let output = send.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(fs::read(Path::new(&into).join("file")).unwrap(), b"content");
    wait_until_gone(&into);
}

#[test]
#[ignore = "needs root and sshd"]
fn ports_are_forwarded_in_all_directions_and_a_hang_up_ends_both_ends() {
    let sshd = Sshd::start();
    let (target, back) = (start_server(), start_server());
    let (local, remote) = (format!("0:{target}"), format!("0:{back}"));
    let mut forward = over(&sshd, "forward", &["--json", "-L", &local, "-R", &remote, HOST]);
    let mut forward = Running::spawn(&mut forward);
    let ports: Vec<_> =
        (0..2).map(|_| forward.wait_for("listening")["listening"].as_str().unwrap().to_owned()).collect();
    for (port, length) in ports.iter().zip([100_000, 200_000]) {
        exchange(port, 1000, length);
    }
    let far = processes(&format!("--allow {target}"));
    let far = far.iter().find(|line| line.contains("--detached")).unwrap();
    assert_eq!(far.matches("--allow").count(), 2, "{far}");
    assert!(far.contains("--allow listen=127.0.0.1:*"), "{far}");
    kill_process(Pid::from_child(&forward.child), Signal::HUP).unwrap();
    assert_eq!(forward.end().0, Some(130));
    wait_until_gone(&target);
}

#[test]
#[ignore = "needs root and sshd"]
fn a_far_end_gets_the_rule_for_socks_and_what_both_ends_need_to_code() {
    let sshd = Sshd::start();
    let coding = "--latency 40ms --deliver 99.9% --max-overhead 30% --redundancy every:1.5";
    let arguments = format!("--json --linger 3700001ms {coding} -D 0 {HOST}");
    let mut forward = over(&sshd, "forward", &arguments.split(' ').collect::<Vec<_>>());
    let mut forward = Running::spawn(&mut forward);
    forward.wait_for("listening");
    let far = processes("--detach 3700001ms");
    assert!(far.iter().any(|line| line.contains("--allow *:* --detached")), "{far:?}");
    let coding = format!("{} --allow", coding.replace("40ms", "40000000ns"));
    assert!(far.iter().any(|line| line.contains(&coding)), "{far:?}");
    forward.interrupt();
    assert_eq!(forward.end().0, Some(130));
    wait_until_gone("3700001ms");
}

/// ssh begins over TCP, and goes on over the coded connection that it has started.
#[test]
#[ignore = "needs root and sshd"]
fn ssh_crosses_as_proxy_command_to_the_host_that_it_reaches() {
    let sshd = Sshd::start();
    let inner = [
        format!("{} forward -q --ssh '{}'", assert_cmd::cargo::cargo_bin("tidewire").display(), sshd.command()),
        format!("--remote '{}' -W %h:%p {HOST}", program()),
    ]
    .join(" ");
    let mut ssh = Command::new("ssh")
        .args(sshd.options())
        .args(["-o", &format!("ProxyCommand={inner}"), HOST, "cat; exit 42"])
        .env("TIDEWIRE_CONFIG", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent = b"over ssh over tidewire over ssh".repeat(10_000);
    let mut stdin = ssh.stdin.take().unwrap();
    let ended = thread::scope(|scope| {
        scope.spawn(|| stdin.write_all(&sent).map(|()| drop(stdin)));
        ssh.wait_with_output().unwrap()
    });
    assert_eq!(ended.status.code(), Some(42), "{}", text(&ended));
    assert!(ended.stdout == sent, "{} of {} bytes, or others", ended.stdout.len(), sent.len());
    wait_until_gone(&format!("--allow {}", sshd.address));
}

/// Starts a forwarding with a short time for its far end. Returns it with a TCP connection through it.
fn started(sshd: &Sshd) -> (Running, String, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let mut forward = over(sshd, "forward", &["--json", "--linger", "3s", "-L", &format!("0:{target}"), HOST]);
    let mut forward = Running::spawn(&mut forward);
    let port = forward.wait_for("listening")["listening"].as_str().unwrap().to_owned();
    let client = TcpStream::connect(port).unwrap();
    (&client).write_all(b"x").unwrap();
    let mut accepted = listener.accept().unwrap().0;
    accepted.read_exact(&mut [0]).unwrap();
    (forward, target, client)
}

#[test]
#[ignore = "needs root and sshd"]
fn a_killed_near_end_of_a_forwarding_leaves_no_far_end() {
    let sshd = Sshd::start();
    let (mut forward, target, _client) = started(&sshd);
    assert!(!processes(&target).is_empty());
    forward.child.kill().unwrap();
    forward.child.wait().unwrap();
    wait_until_gone(&target);
}

/// Once the link is there, nothing of ssh is left, at either end.
#[test]
#[ignore = "needs root and sshd"]
fn a_forwarding_goes_on_without_ssh_and_without_its_far_end_it_ends() {
    let sshd = Sshd::start();
    let (forward, target, _client) = started(&sshd);
    let key = sshd.path("user");
    let ssh = || processes(&key).into_iter().filter(|line| line.starts_with("ssh ")).count();
    wait_until("ssh has ended", || ssh() == 0);
    let shells =
        || processes(&target).into_iter().filter(|line| line.contains("--detach ") && !line.contains("--detached"));
    wait_until("what ssh started has ended", || shells().next().is_none());
    let far = fs::read_dir("/proc").unwrap().find_map(|entry| {
        let entry = entry.ok()?;
        let line = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).replace('\0', " ");
        (line.contains(&target) && line.contains("--detached")).then(|| entry.file_name().into_string().unwrap())
    });
    let far = far.unwrap();
    for stdio in 0..3 {
        assert_eq!(fs::read_link(format!("/proc/{far}/fd/{stdio}")).unwrap(), Path::new("/dev/null"));
    }
    // The first process of a session has its number.
    let stat = fs::read_to_string(format!("/proc/{far}/stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_eq!(session, far);
    kill_process(Pid::from_raw(far.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(forward.end().0, Some(3));
}

#[test]
#[ignore = "needs root and sshd"]
fn a_killed_sender_leaves_no_far_end_and_the_same_command_resumes() {
    let sshd = Sshd::start();
    let file = sshd.path("large file");
    fs::write(&file, b"0123456789abcdef".repeat(600_000)).unwrap();
    let into = sshd.path("into");
    let goal = format!("{HOST}:{into}");
    let send = |rate: &str| over(&sshd, "send", &["--json", "--linger", "3s", "--max-rate", rate, &file, &goal]);
    let mut sender: Child = send("20mbit").spawn().unwrap();
    let parts = Path::new(&into).join(".tidewire-parts");
    let size =
        || walkdir::WalkDir::new(&parts).into_iter().flatten().filter_map(|f| Some(f.metadata().ok()?.len())).max();
    wait_until("a part has bytes", || size().is_some_and(|bytes| bytes > 0));
    sender.kill().unwrap();
    sender.wait().unwrap();
    wait_until_gone(&into);
    let output = send("1gbit").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(fs::read(Path::new(&into).join("large file")).unwrap() == fs::read(&file).unwrap());
    wait_until_gone(&into);
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_far_end_that_hears_nothing_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().to_str().unwrap();
    let output = tidewire(&["receive", "--detach", "3s", "--listen", "127.0.0.1:0", "--dir", into]).output().unwrap();
    let line = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success() && line.starts_with("TIDEWIRE-LINK "), "{line} {}", text(&output));
    assert!(line.contains("tidewire://127.0.0.1:") && line.lines().count() == 1, "{line}");
    wait_until_gone(into);
}

/// The far shell kills the sshd that would pass its output on, so the near end never has the link.
#[test]
#[ignore = "needs root and sshd"]
fn a_broken_ssh_leaves_no_far_end() {
    let sshd = Sshd::start();
    let (file, into) = (sshd.path("user.pub"), sshd.path("into"));
    let remote = format!("kill -9 $PPID; {}", program());
    // The line may be written before sshd is dead. Then nobody has the link, and nobody connects.
    let goal = format!("{HOST}:{into}");
    let mut send = over_program(&sshd, &remote, "send", &["--linger", "3s", &file, &goal]);
    let (code, said) = failure(&mut send);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("could not run a command on root@127.0.0.1"), "{said}");
    wait_until_gone(&into);
    assert!(!Path::new(&into).join("user.pub").exists());
}

#[test]
#[ignore = "needs root and sshd"]
fn what_is_wrong_with_ssh_or_the_far_tidewire_is_named() {
    let sshd = Sshd::start();
    let (file, goal) = (sshd.path("user.pub"), format!("{HOST}:{}", sshd.path("into")));
    let mut no_program = tidewire(&["send", "--ssh", "/no/such/ssh -p 1", &file, &goal]);
    let mut no_host = tidewire(&["send", "--ssh", "ssh -F none -p 1 -o BatchMode=yes", &file, &goal]);
    let remote = |program: &str| over_program(&sshd, program, "send", &[&file, &goal]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut in_use = tidewire(&["forward", "--ssh", "/no/such/ssh", "-L"]);
    in_use.args([&format!("{}:h:1", busy.local_addr().unwrap()), HOST]);
    for (command, code, words) in [
        (&mut in_use, 7, &["cannot listen on", "another port"][..]),
        (&mut no_program, 1, &["no program `/no/such/ssh`", "--ssh"]),
        (&mut no_host, 3, &["could not run a command on root@127.0.0.1", "true`"]),
        (&mut remote("no-such-tidewire"), 1, &["no `no-such-tidewire`", "install tidewire", "--remote"]),
        (&mut remote("/etc/passwd"), 1, &["cannot execute `/etc/passwd`"]),
        (&mut remote("true"), 1, &["printed no link"]),
        (
            &mut remote("echo 'error: unexpected argument --detach' >&2; exit 2; :"),
            1,
            &["older than tidewire", "same release"],
        ),
        (
            &mut remote("echo TIDEWIRE-LINK 54570009.7 9.9.9 x;"),
            1,
            &["tidewire 9.9.9 there", "54570009.7", "same release"],
        ),
        (&mut remote("echo TIDEWIRE-LINK 1;"), 1, &["a line that has no link"]),
        // A goal that cannot be a folder.
        (&mut over(&sshd, "send", &[&file, &format!("{HOST}:{file}")]), 7, &["cannot receive into", "code 7"]),
        (&mut tidewire(&["forward", "-L", "0:h:1", "no host"]), 2, &["user@host.example"]),
        (&mut tidewire(&["forward", "-L", "0:h:1", "--ssh", "'", HOST]), 2, &["open quote"]),
        (&mut tidewire(&["send", "--linger", "1ms", "x", "h:"]), 2, &["at least 3s"]),
    ] {
        let (ended, said) = failure(command);
        assert_eq!(ended, Some(code), "{command:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{command:?}: {word}: {said}");
        }
    }
}

/// The far end listens, and no packet gets through to it.
#[test]
#[ignore = "needs root and sshd"]
fn blocked_udp_is_named_with_its_port() {
    let sshd = Sshd::start();
    // Nobody answers at this port.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let script = sshd.path("tidewire");
    fs::write(&script, format!("{} \"$@\" | sed 's|:[0-9]*/#|:{port}/#|'\n", program())).unwrap();
    let goal = format!("{HOST}:{}", sshd.path("into"));
    let remote = format!("sh {script}");
    let (code, said) = failure(&mut over_program(&sshd, &remote, "send", &["--linger", "3s", &script, &goal]));
    assert_eq!(code, Some(3), "{said}");
    for word in
        [&format!("127.0.0.1:{port}"), &format!("UDP port {port}"), "--remote-port", "ssh reached root@127.0.0.1"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    wait_until_gone(&sshd.path("into"));
}
