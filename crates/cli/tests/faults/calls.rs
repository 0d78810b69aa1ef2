//! System calls that fail: strace injects errors into the calls of a sender or a receiver. Errors of the
//! socket cost no byte. Errors of files are named, with exit code 7, and the same command then continues. No
//! error leaves an incomplete file under its final name. Tests that need strace say so and pass where it is
//! missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{Running, tidewire};
use crate::{receive, schema, wrapped, write};

/// The unit that is flushed, and after which a transfer can continue (docs/transfer.md section 4).
const GROUP: u64 = 4 << 20;
/// A little more than two groups.
const LARGE: u64 = 2 * GROUP + 1_100_000;
const SMALL: u64 = 1_000;

/// The end whose calls fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Sender,
    Receiver,
}
use At::{Receiver, Sender};

/// Which calls may fail: those with this path, or with a descriptor of the file.
#[derive(Clone, Copy, Debug)]
enum On {
    Anything,
    /// The large file at the sender: its path, and the name by which it is opened.
    Source,
    SourceName,
    /// The part of the large file.
    Part,
    PartName,
    /// The state beside it.
    State,
    /// The folder of the destination, opened to be flushed.
    Folder,
    Dot,
}

/// `call` fails with `error` at the times that `when` names (strace(1)), counted for each thread.
#[derive(Clone, Copy, Debug)]
struct Fault {
    at: At,
    call: &'static str,
    error: &'static str,
    when: &'static str,
    on: On,
}

/// How a transfer ended.
#[derive(Debug)]
struct Ended {
    sender: (Option<i32>, Vec<Value>),
    receiver: (Option<i32>, Vec<Value>),
    /// Number of injected errors.
    injected: usize,
}

/// Two files, and the folder that receives them. Both keep their names and inodes, so the part keeps its
/// name.
struct Stage {
    folder: tempfile::TempDir,
    sources: [PathBuf; 2],
    /// Name of the large file's part, without its extension.
    part: String,
}

impl Stage {
    fn new() -> Self {
        let traced =
            Command::new("strace").args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "true"]).output();
        let traced = traced.is_ok_and(|output| output.status.success());
        tidewire_testing::needs("strace, and the right to trace", traced);
        let folder = tempfile::tempdir().unwrap();
        // The path as the kernel reports it to strace.
        let path = folder.path().canonicalize().unwrap();
        let sources = [path.join("large"), path.join("small")];
        write(&sources[0], LARGE);
        write(&sources[1], SMALL);
        let mut stage = Self { folder, sources, part: String::new() };
        // Without a fault everything arrives, and the trace contains the name of the part. The large file is
        // the first one that is opened.
        stage.clear();
        let ended = stage.transfer(Some((Receiver, &["-e", "trace=openat2"])));
        assert_eq!((ended.sender.0, ended.receiver.0), (Some(0), Some(0)), "{ended:?}");
        stage.assert_all_arrived(&ended);
        let log = fs::read_to_string(stage.log()).unwrap();
        let name = log.split('"').find_map(|word| word.strip_suffix(".part"));
        stage.part = name.unwrap_or_else(|| panic!("no part in {log}")).to_owned();
        stage
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn destination(&self) -> PathBuf {
        self.path().join("into")
    }

    fn log(&self) -> PathBuf {
        self.path().join("strace.log")
    }

    /// Empties the destination.
    fn clear(&self) {
        let _ = fs::remove_dir_all(self.destination());
        fs::create_dir(self.destination()).unwrap();
    }

    /// Runs a transfer into an empty destination under `fault`, which must have happened.
    fn under(&self, fault: Fault) -> Ended {
        let parts = self.destination().join(".tidewire-parts");
        let file = |path: &Path| path.to_str().unwrap().to_owned();
        let path = match fault.on {
            On::Anything => None,
            On::Source => Some(file(&self.sources[0])),
            On::SourceName => Some("large".to_owned()),
            On::Part => Some(file(&parts.join(format!("{}.part", self.part)))),
            On::PartName => Some(format!("{}.part", self.part)),
            On::State => Some(file(&parts.join(format!("{}.state", self.part)))),
            On::Folder => Some(file(&self.destination())),
            On::Dot => Some(".".to_owned()),
        };
        let Fault { at, call, error, when, .. } = fault;
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={when}"));
        let mut options = vec!["-e", &trace, "-e", &inject];
        if let Some(path) = &path {
            options.extend(["-P", path]);
        }
        self.clear();
        let ended = self.transfer(Some((at, &options)));
        println!("{fault:?}: {} calls failed, {:?} and {:?}", ended.injected, ended.sender.0, ended.receiver.0);
        assert!(ended.injected > 0, "{fault:?} did not come about: {ended:?}");
        ended
    }

    /// Sends both files, with one end under strace.
    fn transfer(&self, traced: Option<(At, &[&str])>) -> Ended {
        let trace = |at, command: Command| match traced {
            Some((end, options)) if end == at => {
                let mut strace = Command::new("strace");
                // The tracer is not the parent, so the processes stay children of the test. Calls that are
                // not traced run at full speed.
                strace.args(["-D", "-f", "-q", "--seccomp-bpf", "-o"]).arg(self.log()).args(options).arg("--");
                wrapped(strace, &command)
            }
            _ => command,
        };
        let _ = fs::remove_file(self.log());
        let mut receiver = Running::spawn(&mut trace(Receiver, receive(&self.destination(), "127.0.0.1:0")));
        let mut ids = vec![receiver.child.id()];
        let first = receiver.text();
        let said = schema::lines(first.as_bytes());
        let link = said.first().and_then(|line| line["link"].as_str());
        let sender = link.map_or_else(Default::default, |link| {
            let mut command = tidewire(&["send", "--json"]);
            command.args(&self.sources).arg(link);
            let mut command = trace(Sender, command);
            let sender = Running::spawn(&mut command);
            ids.push(sender.child.id());
            sender.end()
        });
        if link.is_some() && !sender.1.iter().any(|line| line["event"] == "connected") {
            // No sender will connect.
            receiver.interrupt();
        }
        let (code, lines) = receiver.end();
        let injected = traced.map_or(0, |(at, _)| self.injected(ids[usize::from(at == Sender && ids.len() > 1)]));
        Ended { sender, receiver: (code, [said, lines].concat()), injected }
    }

    /// Counts the injected errors in the tracer's log, which is complete when process `id` has ended.
    fn injected(&self, id: u32) -> usize {
        let id = id.to_string();
        loop {
            let log = fs::read_to_string(self.log()).unwrap();
            if log.lines().any(|line| line.split_whitespace().take(2).eq([id.as_str(), "+++"])) {
                return log.matches("(INJECTED)").count();
            }
            std::thread::yield_now();
        }
    }

    fn is_whole(&self, source: &Path) -> bool {
        let there = fs::read(self.destination().join(source.file_name().unwrap()));
        there.is_ok_and(|bytes| bytes == fs::read(source).unwrap())
    }

    /// Asserts that both files arrived and that nothing else is there.
    fn assert_all_arrived(&self, ended: &Ended) {
        assert!(self.sources.iter().all(|source| self.is_whole(source)), "{ended:?}");
        assert!(!self.destination().join(".tidewire-parts").exists(), "{ended:?}");
    }

    /// Asserts that every file under a final name is whole.
    fn assert_no_broken_file(&self, ended: &Ended) {
        let names: BTreeSet<_> = fs::read_dir(self.destination()).unwrap().map(|step| step.unwrap().path()).collect();
        for source in &self.sources {
            let there = names.contains(&self.destination().join(source.file_name().unwrap()));
            assert!(!there || self.is_whole(source), "{} is there and not whole: {ended:?}", source.display());
        }
    }

    /// Runs the same command without a fault, which completes the files. Returns the number of bytes that
    /// were there before.
    fn again(&self) -> u64 {
        let ended = self.transfer(None);
        assert_eq!((ended.sender.0, ended.receiver.0), (Some(0), Some(0)), "{ended:?}");
        self.assert_all_arrived(&ended);
        ended.sender.1.iter().find(|line| line["event"] == "tally").unwrap()["resumed_bytes"].as_u64().unwrap()
    }
}

/// Every seventh call, beginning with the second: a byte that is sent again may fail again.
const OFTEN: &str = "2+7";

#[test]
#[ignore = "needs strace"]
fn e9_errors_of_the_socket_cost_no_byte() {
    let stage = Stage::new();
    let sends = ["EPERM", "ENOBUFS", "EMSGSIZE", "ENETUNREACH"].map(|error| ("sendmsg", error));
    let receives = ["EINTR", "ENOMEM", "ECONNREFUSED"].map(|error| ("recvmsg", error));
    for (index, (call, error)) in sends.into_iter().chain(receives).enumerate() {
        // Quick runs inject each error at one end only.
        // A sender without a route is told so at once, and ends.
        let ends = match error {
            "ENETUNREACH" => &[Receiver][..],
            _ if tidewire_testing::few_seeds() => &[[Sender, Receiver][index % 2]],
            _ => &[Sender, Receiver],
        };
        for &at in ends {
            let ended = stage.under(Fault { at, call, error, when: OFTEN, on: On::Anything });
            assert_eq!((ended.sender.0, ended.receiver.0), (Some(0), Some(0)), "{ended:?}");
            stage.assert_all_arrived(&ended);
        }
    }
}

#[test]
#[ignore = "needs strace"]
fn e9_a_disk_that_fails_is_named_and_the_file_goes_on() {
    let stage = Stage::new();
    let faults = [
        ("write", "EIO", "20+", On::Part, "unwritable"),
        ("write", "ENOSPC", "20+", On::Part, "no space"),
        ("write", "ENOSPC", "1", On::State, "no space"),
        ("fdatasync", "EIO", "1", On::Part, "unwritable"),
        ("ftruncate", "EIO", "1+", On::Part, "unwritable"),
        ("fsync", "EIO", "1", On::Part, "unwritable"),
        ("renameat2", "EIO", "1", On::PartName, "unwritable"),
        ("openat2", "EMFILE", "1+", On::PartName, "unwritable"),
        ("openat2", "ENFILE", "1", On::Dot, "unwritable"),
        ("fsync", "EIO", "1", On::Folder, "unwritable"),
    ];
    // Quick runs take the last four faults. The last two once cut the file after its rename.
    for (call, error, when, on, reason) in faults.into_iter().skip(if tidewire_testing::few_seeds() { 6 } else { 0 }) {
        let fault = Fault { at: Receiver, call, error, when, on };
        let ended = stage.under(fault);
        assert_eq!((ended.sender.0, ended.receiver.0), (Some(7), Some(7)), "{fault:?}: {ended:?}");
        for lines in [&ended.sender.1, &ended.receiver.1] {
            let told = lines.iter().any(|line| line["path"] == "large" && line["reason"] == reason);
            assert!(told, "{fault:?}: {ended:?}");
        }
        stage.assert_no_broken_file(&ended);
        assert!(stage.is_whole(&stage.sources[1]) || matches!(on, On::Dot | On::Folder), "{fault:?}: {ended:?}");
        let resumed = stage.again();
        println!("{fault:?}: went on from {resumed} bytes");
    }
}

/// What a file system or a sandbox may lack costs no file. If it could not be replaced, both ends are warned.
#[test]
#[ignore = "needs strace"]
fn issue_40_what_a_destination_lacks_costs_no_file() {
    let stage = Stage::new();
    let faults = [
        ("fsync", "EINVAL", On::Folder, None),
        ("openat2", "EACCES", On::Dot, None),
        ("fsync", "EBADF", On::Part, None),
        ("fdatasync", "EINVAL", On::Part, None),
        ("fchmod", "EPERM", On::Part, Some("its mode is 600 in place of ")),
        ("fchmod", "ENOSYS", On::Part, Some("its mode is 600 in place of ")),
        ("utimensat", "EPERM", On::Anything, Some("its modification time is not the sender's")),
        ("utimensat", "ENOSYS", On::Anything, Some("its modification time is not the sender's")),
        ("fsync,syncfs", "ENOSYS", On::Anything, Some("its folder was not flushed")),
        ("openat2", "EPERM", On::Anything, None),
        ("openat2", "ENOSYS", On::Anything, None),
        ("statx", "EPERM", On::Anything, None),
        ("flock", "ENOLCK", On::Anything, None),
        ("flock", "ENOSYS", On::Anything, None),
    ];
    for (call, error, on, warning) in faults {
        let fault = Fault { at: Receiver, call, error, when: "1+", on };
        let ended = stage.under(fault);
        assert_eq!((ended.sender.0, ended.receiver.0), (Some(0), Some(0)), "{fault:?}: {ended:?}");
        stage.assert_all_arrived(&ended);
        for lines in [&ended.sender.1, &ended.receiver.1] {
            let large = lines.iter().find(|line| line["path"] == "large" && line["event"] == "file").unwrap();
            let told = large["warning"].as_str();
            let is_wanted = match warning {
                Some(warning) => told.is_some_and(|told| told.contains(warning)),
                None => told.is_none(),
            };
            assert!(is_wanted, "{fault:?}: {large}");
        }
    }
}

#[test]
#[ignore = "needs strace"]
fn e9_a_source_that_fails_is_named_and_one_that_is_interrupted_is_read_on() {
    let stage = Stage::new();
    // A file that cannot be opened is not announced, so it is no failure of the receiver.
    let cases = [("read", "EIO", On::Source, 7), ("openat2", "EMFILE", On::SourceName, 0)];
    for (call, error, on, code) in cases {
        let fault = Fault { at: Sender, call, error, when: "1+", on };
        let ended = stage.under(fault);
        assert_eq!((ended.sender.0, ended.receiver.0), (Some(7), Some(code)), "{fault:?}: {ended:?}");
        assert!(ended.sender.1.iter().any(|line| line["reason"] == "unreadable"), "{fault:?}: {ended:?}");
        stage.assert_no_broken_file(&ended);
        assert!(stage.is_whole(&stage.sources[1]), "{fault:?}: {ended:?}");
        stage.again();
    }
    let ended = stage.under(Fault { at: Sender, call: "read", error: "EINTR", when: "2+2", on: On::Source });
    assert_eq!((ended.sender.0, ended.receiver.0), (Some(0), Some(0)), "{ended:?}");
    stage.assert_all_arrived(&ended);
}

/// From the first, second, ... call of each thread on, the system gives no randomness. Nothing continues
/// without it.
#[test]
#[ignore = "needs strace"]
fn e9_without_randomness_nothing_is_sent() {
    let stage = Stage::new();
    for at in [Sender, Receiver] {
        for when in ["1+", "2+", "3+", "4+", "5+"] {
            let fault = Fault { at, call: "getrandom", error: "EIO", when, on: On::Anything };
            let ended = stage.under(fault);
            let code = if at == Sender { ended.sender.0 } else { ended.receiver.0 };
            // The standard library panics, with 101, if its hash tables get no seed.
            assert!(matches!(code, Some(1 | 5 | 7 | 101)), "{fault:?}: {ended:?}");
            let said = |line: &Value| line["message"].as_str().is_some_and(|text| text.contains("random"));
            let lines = if at == Sender { &ended.sender.1 } else { &ended.receiver.1 };
            assert!(!matches!(code, Some(1 | 7)) || lines.iter().any(said), "{fault:?}: {ended:?}");
            stage.assert_no_broken_file(&ended);
        }
        stage.again();
    }
}
