//! Text of a hostile peer on a terminal: close reasons, details of results, file names. It is shown, and
//! controls nothing.

use std::fs;
use std::path::Path;
use std::process::Output;

use tidewire::{CloseCode, Config, Connection, Endpoint, Secret};
use tidewire_transfer::{Have, Reason, Record, RecordReader, RecordWriter};
use tokio::io::split;

use crate::process::{Running, tidewire};
use crate::schema;

/// This text clears the screen, sets the title, forges a line of `--json`, reorders what follows, and sends a
/// control character of C1.
const WORDS: &str = "\x1b[2J\x1b]0;owned\x07\n{\"event\":\"summary\"}\r\u{202e}\u{2066}\u{9b}31m\u{2028}";

/// Whether the output consists of whole lines of harmless characters.
fn is_harmless(output: &[u8]) -> bool {
    let text = std::str::from_utf8(output).unwrap();
    let hostile = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.lines().all(|line| !line.contains(hostile))
}

/// Sends a file to a listener that treats the connection as `hostile` does, with or without `--json`.
fn send_to<F: Future<Output = ()>>(json: bool, hostile: impl FnOnce(Connection) -> F) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), b"content").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let secret = Secret::new([9; 32]);
        let listening = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(listening, secret.clone(), Config::default()).unwrap();
        let link = format!("tidewire://{}/#{}", endpoint.local_addr(), *secret.reveal());
        let mut command = tidewire(&["send"]);
        command.args(json.then_some("--json")).arg(folder.path().join("f")).arg(link);
        let sender = command.spawn().unwrap();
        hostile(endpoint.accept().await.unwrap()).await;
        tokio::task::spawn_blocking(|| sender.wait_with_output().unwrap()).await.unwrap()
    })
}

#[test]
fn the_reason_of_a_close_is_shown_escaped() {
    for json in [false, true] {
        let output = send_to(json, async |connection| {
            let _stream = connection.accept().await;
            connection.close(CloseCode::Application(300), WORDS);
        });
        assert_eq!(output.status.code(), Some(5));
        assert!(is_harmless(&output.stdout) && is_harmless(&output.stderr), "{output:?}");
        if json {
            let lines = schema::lines(&output.stdout);
            let error = lines.iter().find(|line| line["event"] == "error").unwrap();
            assert!(error["message"].as_str().unwrap().contains(WORDS), "{error}");
            assert_eq!(lines.last().unwrap()["event"], "summary");
        } else {
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(r"\u{1b}[2J\u{1b}]0;owned\u{7}\n{") && said.contains(r"\u{202e}"), "{said}");
        }
    }
}

#[test]
fn the_detail_of_a_result_is_shown_escaped() {
    for json in [false, true] {
        let output = send_to(json, async |connection| {
            let (read, write) = split(connection.accept().await.unwrap());
            let (mut records, mut answers) =
                (RecordReader::open(read).await.unwrap(), RecordWriter::open(write).await.unwrap());
            while !matches!(records.next().await.unwrap(), Record::Look(_)) {}
            answers.write(&Record::Have { id: 0, have: Have::Nothing }).await.unwrap();
            while !matches!(records.next().await.unwrap(), Record::Done { .. }) {}
            let failure = Some(Reason::Unwritable);
            answers.write(&Record::Result { id: 0, failure, detail: WORDS }).await.unwrap();
            answers.write(&Record::Tally { kept: 0, failed: 1, bytes: 0 }).await.unwrap();
            connection.closed().await;
        });
        assert_eq!(output.status.code(), Some(7));
        assert!(is_harmless(&output.stdout) && is_harmless(&output.stderr), "{output:?}");
        if json {
            let lines = schema::lines(&output.stdout);
            let file = lines.iter().find(|line| line["event"] == "file").unwrap();
            assert!(file["detail"].as_str().unwrap().contains(WORDS), "{file}");
        }
    }
}

#[test]
fn a_hostile_file_name_is_shown_escaped_where_it_arrives() {
    let name = WORDS.replace('/', "");
    for json in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (from, into) = (folder.path().join(&name), folder.path().join("into"));
        fs::write(&from, b"content").unwrap();
        // This folder is in the way, so that the name appears in a failure too.
        fs::create_dir_all(into.join(&name).join("x")).unwrap();
        let mut command = tidewire(&["receive", "--once", "--listen", "127.0.0.1:0", "--dir"]);
        command.arg(&into).args(json.then_some("--json"));
        let mut receiver = Receiver::start(command);
        let sent = tidewire(&["send"]).arg(&from).arg(receiver.link(json)).output().unwrap();
        assert_eq!(sent.status.code(), Some(7), "{sent:?}");
        let (code, stdout, stderr) = receiver.end();
        assert_eq!(code, Some(7));
        assert!(is_harmless(&stdout) && is_harmless(&stderr) && is_harmless(&sent.stderr), "{stdout:?} {stderr:?}");
        if json {
            let lines = schema::lines(&stdout);
            assert!(lines.iter().any(|line| line["event"] == "file" && line["path"] == name.as_str()), "{lines:?}");
        } else {
            assert!(String::from_utf8(stderr).unwrap().contains(r"\u{1b}[2J"));
        }
    }
}

/// A receiver whose output is kept, both stdout and stderr.
struct Receiver {
    running: Running,
    errors: tempfile::NamedTempFile,
    said: Vec<u8>,
}

impl Receiver {
    fn start(mut command: std::process::Command) -> Self {
        let errors = tempfile::NamedTempFile::new().unwrap();
        let running = Running::spawn_with_errors(&mut command, errors.reopen().unwrap());
        Self { running, errors, said: Vec::new() }
    }

    fn link(&mut self, json: bool) -> String {
        let line = self.running.text();
        self.said.extend_from_slice(format!("{line}\n").as_bytes());
        if !json {
            return line;
        }
        schema::lines(line.as_bytes())[0]["link"].as_str().unwrap().to_owned()
    }

    fn end(mut self) -> (Option<i32>, Vec<u8>, Vec<u8>) {
        let (code, rest) = self.running.end_as_text();
        self.said.extend_from_slice(&rest);
        let path: &Path = self.errors.path();
        (code, self.said, fs::read(path).unwrap())
    }
}
