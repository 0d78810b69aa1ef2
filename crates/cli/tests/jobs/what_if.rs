//! Replays in the page of a recording: the figures of `tidewire replay`, one replay at a time, none for
//! strangers, and none for a client that is gone.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::dash::{ask, status};
use crate::process::{Running, tidewire};
use crate::record::recorded_bench;
use crate::schema;
use crate::socks::needs;

/// A page of recordings: its process, host and path.
fn page(files: &[&str]) -> (Running, String, String) {
    let mut dash = Running::start(&[&["dash", "--json"], files].concat());
    let url = dash.wait_for("dashboard")["url"].as_str().unwrap().to_owned();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    (dash, host.to_owned(), format!("/{path}"))
}

/// The headers of a request with this body, and the body.
fn request(host: &str, body: &str) -> String {
    format!("Host: {host}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// Asks for a replay and does not wait for the answer.
fn start(host: &str, path: &str, body: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(host).unwrap();
    write!(tcp, "POST {path}replay HTTP/1.1\r\n{}", request(host, body)).unwrap();
    tcp
}

/// The rest of the answer.
fn rest(mut tcp: TcpStream) -> String {
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads until the answer has this text.
fn read_until(tcp: &mut TcpStream, text: &str) {
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(text) {
        let mut piece = [0; 4096];
        let len = tcp.read(&mut piece).unwrap();
        assert!(len > 0, "{text} is missing in {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..len]);
    }
}

/// What `tidewire replay` prints.
fn replay(arguments: &[&str]) -> (Vec<Value>, String) {
    let ended = tidewire(&[&["replay", "--json"], arguments].concat()).output().unwrap();
    (schema::lines(&ended.stdout), String::from_utf8(ended.stderr).unwrap())
}

/// True if a cell, such as `12.3 ms` or `12.3 s`, is this figure, rounded to the cell's last digit. A host
/// that stands still for a moment makes a long delay, and long delays have fewer digits.
fn is_rounded(cell: &str, figure: f64) -> bool {
    let (number, unit) = cell.split_once(' ').unwrap();
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let scale = if unit == "s" { 1000.0 } else { 1.0 };
    let half_a_digit = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
    (figure / scale - number.parse::<f64>().unwrap()).abs() < 1.001 * half_a_digit
}

#[test]
fn a_cell_is_its_figure_rounded() {
    assert!(is_rounded("12.3 ms", 12.349) && !is_rounded("12.3 ms", 12.36));
    assert!(is_rounded("148 ms", 147.6) && is_rounded("10.2 s", 10_160.0) && is_rounded("0.25 %", 0.25));
}

/// The value with each number as a fraction: a browser writes 48.0 as 48.
fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(values) => values.into_iter().map(with_floats).collect(),
        Value::Object(entries) => entries.into_iter().map(|(name, value)| (name, with_floats(value))).collect(),
        other => other,
    }
}

#[test]
fn whole_numbers_and_fractions_are_alike() {
    let [whole, fraction] = [r#"[{"max": 48, "done": null}]"#, r#"[{"max": 48.0, "done": null}]"#];
    let [whole, fraction] = [whole, fraction].map(|text| with_floats(serde_json::from_str(text).unwrap()));
    assert_eq!(whole, fraction);
    assert_ne!(whole, with_floats(serde_json::from_str(r#"[{"max": 48.5, "done": null}]"#).unwrap()));
}

#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_the_rows_of_the_command() {
    needs("chromium");
    let folder = tempfile::tempdir().unwrap();
    let [near, far] = recorded_bench(folder.path(), "2", &[]);
    let (_dash, host, path) = page(&[&near, &far]);
    let mut browser = Browser::open(&format!("http://{host}{path}"));
    browser.wait_until("document.documentElement.dataset.channel === 'ended'");
    let until = |browser: &mut Browser, state: &str| {
        browser.wait_until(&format!("document.getElementById('what-if').dataset.state === '{state}'"));
    };
    browser.evaluate("document.getElementById('what-if-peer').value = '1'").unwrap();
    browser.evaluate("document.querySelector('[name=profile]').focus()").unwrap();
    browser.type_and_enter("arq");
    until(&mut browser, "done");
    let (mut wanted, _) = replay(&[&near, "--peer", &far, "--profile", "arq"]);
    wanted.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("v")));
    let rows = browser.evaluate("document.getElementById('what-if').dataset.rows").unwrap();
    let shown = serde_json::from_str::<Value>(rows.as_str().unwrap()).unwrap();
    assert_eq!(with_floats(shown), with_floats(Value::from(wanted.clone())));
    assert_eq!(wanted.last().unwrap()["name"], "--profile arq");

    // The table shows them, and the picture has three marks for each and one in its legend.
    let cells = "JSON.stringify([...document.querySelectorAll('#what-if-table tbody tr')]\
                 .map(row => [...row.children].map(cell => cell.textContent)))";
    let cells = browser.evaluate(cells).unwrap();
    let cells: Vec<Vec<String>> = serde_json::from_str(cells.as_str().unwrap()).unwrap();
    for (row, cells) in wanted.iter().zip(&cells) {
        let delay = |name: &str| row["delay_ms"][name].as_f64().unwrap();
        let percent = |name: &str| 100.0 * row[name].as_f64().unwrap();
        let figures = [percent("overhead"), percent("loss"), delay("p50"), delay("p95"), delay("p99"), delay("p999")];
        for (figure, cell) in figures.iter().zip(&cells[1..]) {
            assert!(is_rounded(cell, *figure), "{figure} is shown as {cell}");
        }
    }
    assert_eq!((cells.len(), wanted.len()), (3, 3));
    browser.wait_until("document.querySelectorAll('#what-if-picture svg circle').length === 12");

    // The picture follows the theme, and nothing is wider than a phone.
    let colour = "getComputedStyle(document.querySelector('#what-if-picture svg text')).fill";
    let before = browser.evaluate(colour).unwrap();
    browser.evaluate("document.getElementById('theme').click()").unwrap();
    assert_ne!(browser.evaluate(colour).unwrap(), before);
    browser.narrow(360);
    browser.wait_until("innerWidth === 360 && document.documentElement.scrollWidth <= 360");
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);

    // A choice that the command refuses is refused in its words.
    browser.evaluate("document.querySelector('[name=redundancy]').focus()").unwrap();
    browser.type_and_enter("every:1");
    until(&mut browser, "wrong");
    let said = browser.evaluate("document.getElementById('what-if-state').textContent").unwrap();
    let (_, refused) = replay(&[&near, "--redundancy", "every:1"]);
    assert!(said != "" && refused.contains(said.as_str().unwrap()), "{said} is not in {refused}");
}

#[test]
fn strangers_and_wrong_choices_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [near, far] = recorded_bench(folder.path(), "1", &[]);
    let (_dash, host, path) = page(&[&near, &far]);
    let post = |line: &str, headers: &str, body: &str| ask(&host, line, &format!("{headers}{}", request(&host, body)));
    let line = format!("POST {path}replay");
    let plain = r#"{"file":0,"choices":{}}"#;
    let wrong = format!("POST /{}/replay", "0".repeat(path.len() - 2));
    for (line, headers, wanted) in [
        (wrong.as_str(), "", "404"),
        ("POST /replay", "", "404"),
        (&format!("POST {path}stream"), "", "404"),
        (&format!("PUT {path}replay"), "", "404"),
        (&format!("GET {path}replay"), "", "405"),
        (&line, "Origin: http://evil.example\r\n", "403"),
        (&line, "Origin: null\r\n", "403"),
        (&line, "Sec-Fetch-Site: cross-site\r\n", "403"),
    ] {
        let answer = post(line, headers, plain);
        assert!(status(&answer) == wanted && !answer.contains("\"event\""), "{line} {headers}: {answer}");
    }
    for (body, sentence) in [
        ("", "the request is wrong"),
        (r#"{"file":0,"choices":{},"svg":"/tmp/a"}"#, "unknown field `svg`"),
        (r#"{"file":7,"choices":{}}"#, "there is no recording 7; there are 2"),
        (r#"{"file":0,"choices":{"svg":"/tmp/a"}}"#, "a replay has no choice `svg`"),
    ] {
        let answer = post(&line, "", body);
        assert!(status(&answer) == "400" && answer.contains(sentence), "{body}: {answer}");
    }
    let long = format!(r#"{{"file":0,"choices":{{"code":"{}"}}}}"#, "x".repeat(5_000));
    assert_eq!(status(&post(&line, "", &long)), "413");
    // The command says the same, where the recording decides too.
    for (file, choices) in [(0, json!({"code": "bogus"})), (0, json!({"code": "raptorq"})), (1, json!({}))] {
        let answer = post(&line, "", &json!({"file": file, "choices": choices}).to_string());
        let words: Vec<String> = choices
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("--{name}={}", value.as_str().unwrap()))
            .collect();
        let words = words.iter().map(String::as_str).chain([[&near, &far][file].as_str()]);
        let (lines, errors) = replay(&words.collect::<Vec<_>>());
        let said = lines.iter().find_map(|line| line["message"].as_str()).map(str::to_owned);
        let said = said.unwrap_or_else(|| errors.lines().next().unwrap().trim_start_matches("error: ").to_owned());
        let found = answer.replace("\\\"", "\"");
        assert!(said.len() > 20 && found.contains(&said), "{choices}: {said} is not in {answer}");
    }
}

/// A recording that can be read only as fast as a test writes it.
fn replace_by_pipe(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    bytes
}

/// Opens a pipe that is being read or will be.
fn open_pipe(path: &str) -> File {
    OpenOptions::new().write(true).open(Path::new(path)).unwrap()
}

#[test]
fn one_replay_runs_two_wait_and_more_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [near, _] = recorded_bench(folder.path(), "1", &[]);
    let (_dash, host, path) = page(&[&near]);
    let bytes = replace_by_pipe(&near);
    let body = r#"{"file":0,"choices":{"redundancy":"none"}}"#;
    // The first one waits for its file, the next two for the first one.
    let first = start(&host, &path, body);
    let mut file = open_pipe(&near);
    let mut waiting = [start(&host, &path, body), start(&host, &path, body)];
    waiting.iter_mut().for_each(|tcp| read_until(tcp, r#"{"event":"waiting"}"#));
    let refused = rest(start(&host, &path, body));
    assert!(status(&refused) == "503" && refused.contains("try again when one of them has ended"), "{refused}");
    // One that waits goes, and leaves its place.
    let [second, third] = waiting;
    drop(second);
    let until = Instant::now() + Duration::from_secs(60);
    let fourth = loop {
        let mut tcp = start(&host, &path, body);
        let mut answer = [0; 12];
        tcp.read_exact(&mut answer).unwrap();
        if &answer == b"HTTP/1.1 200" {
            break tcp;
        }
        assert!(Instant::now() < until, "the place of a client that is gone stays taken");
    };
    // They end in their order. The file is whole for those behind the first.
    std::fs::remove_file(&near).unwrap();
    std::fs::write(&near, &bytes).unwrap();
    file.write_all(&bytes).unwrap();
    drop(file);
    for tcp in [first, third, fourth] {
        let answer = rest(tcp);
        let is_whole = answer.contains(r#""name":"--redundancy none""#) && answer.contains(r#"{"event":"picture""#);
        assert!(is_whole, "{answer}");
    }
}

#[test]
fn a_replay_ends_when_its_client_goes() {
    let folder = tempfile::tempdir().unwrap();
    let [near, _] = recorded_bench(folder.path(), "1", &[]);
    let (_dash, host, path) = page(&[&near]);
    let bytes = replace_by_pipe(&near);
    let client = start(&host, &path, r#"{"file":0,"choices":{}}"#);
    let mut file = open_pipe(&near);
    // The blocks of events, without the end: a recording that goes on for ever.
    let block = |at: usize| 13 + u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize;
    let events = 12 + block(12);
    let mut end = events;
    while bytes[end] == 2 {
        end += block(end);
    }
    file.write_all(&bytes[..end]).unwrap();
    drop(client);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match file.write_all(&bytes[events..end]) {
            Ok(()) => assert!(Instant::now() < until, "the recording is still read"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::BrokenPipe),
        }
    }
}
