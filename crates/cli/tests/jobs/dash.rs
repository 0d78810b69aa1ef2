//! `--dashboard` as a process: the page shows what the summary says, strangers get nothing, and no page
//! harms the job.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::browser::Browser;
use crate::process::{Running, lossy_link, tidewire};
use crate::schema;
use crate::socks::needs;

const LOSSY: [&str; 8] = ["--rate", "25mbit", "--rtt", "20ms", "--loss", "5%", "--back-loss", "5%"];

/// A bench server with a dashboard: the process, its link, and host and path of its page.
fn server() -> (Running, String, String, String) {
    let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0", "--dashboard"]);
    let url = server.wait_for("dashboard")["url"].as_str().unwrap().to_owned();
    let link = server.wait_for("link")["link"].as_str().unwrap().to_owned();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    (server, link, host.to_owned(), format!("/{path}"))
}

/// A client that receives for `seconds`. Returns its summary.
fn run_client(link: &str, seconds: &str) -> Value {
    let client = tidewire(&["bench", "--json", "-R", "-b", "8mbit", "-t", seconds, "-c", link]).output().unwrap();
    assert_eq!(client.status.code(), Some(0), "{client:?}");
    schema::lines(&client.stdout).pop().unwrap()
}

/// Sends a request and returns the answer, or what came of it until the connection ended.
pub fn ask(host: &str, line: &str, headers: &str) -> String {
    let mut tcp = TcpStream::connect(host).unwrap();
    let _ = write!(tcp, "{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn a_taken_port_ends_with_2_before_the_job_begins() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--dashboard={}", taken.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new");
    let dir = dir.to_str().unwrap();
    let ended = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir", dir, &address]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let lines = schema::lines(&ended.stdout);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let message = lines[0]["message"].as_str().unwrap();
    assert!(message.contains("cannot show a dashboard") && message.contains("0 for any"), "{message}");
}

#[test]
fn strangers_get_nothing_and_the_page_has_strict_headers() {
    let (_server, _, host, path) = server();
    let own = format!("Host: {host}\r\n");
    let page = ask(&host, &format!("GET {path}"), &own);
    assert_eq!(status(&page), "200");
    assert!(page.contains("<title>Tidewire</title>"), "{page}");
    let lower = page.to_lowercase();
    for header in ["default-src 'none'; script-src 'self'", "referrer-policy: no-referrer", "nosniff", "no-store"] {
        assert!(lower.contains(header), "{header}: {page}");
    }
    let script = ask(&host, &format!("GET {path}main.js"), &own);
    assert!(script.contains("text/javascript"), "{script}");
    let wrong = format!("/{}/", "0".repeat(path.len() - 2));
    let longer = format!("{}0/", path.trim_end_matches('/'));
    for (line, headers, wanted) in [
        ("GET /".to_owned(), own.clone(), "404"),
        (format!("GET {wrong}"), own.clone(), "404"),
        (format!("GET {wrong}stream"), own.clone(), "404"),
        (format!("GET {longer}"), own.clone(), "404"),
        (format!("GET {path}nothing.js"), own.clone(), "404"),
        (format!("GET {path}..%2f..%2fmod.rs"), own.clone(), "404"),
        (format!("POST {path}"), own.clone(), "404"),
        // A name that an attacker points at this machine.
        (format!("GET {path}"), "Host: rebound.example\r\n".to_owned(), "403"),
        (format!("GET {path}stream"), format!("{own}Origin: http://evil.example\r\n"), "403"),
        (format!("GET {path}stream"), format!("{own}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (format!("GET {path}"), String::new(), "400"),
    ] {
        let answer = ask(&host, &line, &headers);
        // A request without a host is refused by the parser or by us.
        let refused = status(&answer) == wanted || (wanted == "400" && status(&answer) == "403");
        assert!(refused && !answer.contains("<title>"), "{line} {headers}: {answer}");
    }
}

/// The frames of a channel that has ended: their kinds and payloads. The answer has no length, so its body
/// comes in chunks (RFC 9112 section 7.1).
fn frames(answer: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(String::from_utf8_lossy(&answer[..head]).to_lowercase().contains("chunked"));
    let (mut body, mut rest) = (Vec::new(), &answer[head..]);
    while let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&rest[end + 2..end + 2 + len]);
        rest = &rest[end + 4 + len..];
    }
    let (mut frames, mut body) = (Vec::new(), &body[..]);
    while let Some((head, rest)) = body.split_at_checked(5) {
        let (payload, rest) = rest.split_at(u32::from_le_bytes(head[..4].try_into().unwrap()) as usize);
        frames.push((head[4], payload.to_vec()));
        body = rest;
    }
    frames
}

/// Kinds of frames (docs/dashboard.md section 3).
const HELLO: u8 = 1;
const SAMPLE: u8 = 3;
const MARKS: u8 = 4;
const END: u8 = 7;

#[test]
fn recordings_are_shown_as_the_job_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("near.rec");
    let record = path.to_str().unwrap();
    let (_server, direct, ..) = server();
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let job = ["bench", "--json", "-b", "8mbit", "-t", "2", "--record", record, "-c", &link];
    let job = tidewire(&job).output().unwrap();
    let summary = schema::lines(&job.stdout).pop().unwrap();
    let cut = folder.path().join("cut.rec");
    let file = std::fs::read(&path).unwrap();
    std::fs::write(&cut, &file[..file.len() / 2]).unwrap();

    let show = |path: &std::path::Path| {
        let mut dash = Running::start(&["dash", "--json", path.to_str().unwrap()]);
        let url = dash.wait_for("dashboard")["url"].as_str().unwrap().to_owned();
        let (host, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut tcp = TcpStream::connect(host).unwrap();
        write!(tcp, "GET /{token}stream HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        dash.interrupt();
        assert_eq!(dash.end().0, Some(130));
        frames(&answer)
    };
    let whole = show(&path);
    let hello: Value = serde_json::from_slice(&whole[0].1).unwrap();
    assert_eq!((whole[0].0, &hello["live"]), (HELLO, &false.into()));
    let sample = &whole.iter().rfind(|(kind, _)| *kind == SAMPLE).unwrap().1;
    let sample: Value = serde_json::from_slice(sample).unwrap();
    let [shown, counted] = [&sample, &summary].map(|figures| figures["packets"]["sent"].as_u64().unwrap());
    // The packets of closing leave after the summary.
    assert!((counted..counted + 20).contains(&shown), "{shown} shown, {counted} counted: {sample}");
    let marks: usize = whole.iter().filter(|(kind, _)| *kind == MARKS).map(|(_, marks)| marks.len() / 32).sum();
    assert!(marks as u64 >= shown, "{marks} marks");
    assert_eq!(whole.last().unwrap(), &(END, Vec::new()));

    // A recording that was cut off is shown up to there, and says so.
    let (kind, why) = show(&cut).pop().unwrap();
    let why = String::from_utf8(why).unwrap();
    assert!(kind == END && why.contains("cut.rec"), "{why}");
    let refused = tidewire(&["dash", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// A thousand clients that stall, a page that never reads and garbage: the job runs as without them.
#[test]
#[ignore = "slow: waits in real time"]
fn clients_of_every_kind_do_not_harm_the_job() {
    // A thousand sockets are more than the soft limit of many shells.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (mut server, direct, host, path) = server();
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let own = format!("Host: {host}\r\n");
    // Never read: their queues fill, and steps are dropped.
    let stalled: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut tcp = TcpStream::connect(&host).unwrap();
            write!(tcp, "GET {path}stream HTTP/1.1\r\n{own}\r\n").unwrap();
            tcp
        })
        .collect();
    let mut crowd: Vec<TcpStream> = Vec::new();
    for n in 0..1_000u32 {
        let Ok(mut tcp) = TcpStream::connect(&host) else { continue };
        let garbage = [&b"GET /"[..], b"\0\xff\xfe\r\n\r\n", b"GET / HTTP/1.1\r\nX: ", b""][n as usize % 4];
        let _ = tcp.write_all(garbage);
        crowd.push(tcp);
    }
    let summary = run_client(&link, "2");
    assert_eq!(summary["records"]["delivered"], 1_667, "{summary}");
    // All but a bounded number are closed already.
    let mut open = 0;
    for tcp in &mut crowd {
        tcp.set_nonblocking(true).unwrap();
        let mut rest = Vec::new();
        open += usize::from(matches!(tcp.read_to_end(&mut rest), Err(error) if error.kind() == ErrorKind::WouldBlock));
    }
    assert!(open <= 48, "{open} connections are open");
    drop(crowd);
    server.interrupt();
    while server.wait_for("summary")["packets"]["sent"].as_u64().unwrap() == 0 {}
    let (code, _) = server.end();
    assert_eq!(code, Some(130));
    drop(stalled);
}

/// The text of an attribute of the page.
fn attribute(dom: &str, name: &str) -> String {
    let value = dom.split(&format!(" {name}=\"")).nth(1).unwrap_or_else(|| panic!("no {name} in {dom}"));
    value.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&")
}

/// A number as the page writes it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join("\u{202f}")
}

#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_the_figures_of_the_summary() {
    needs("chromium");
    let (mut server, direct, host, path) = server();
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    run_client(&link, "3");
    let summary = server.wait_for("summary");
    let mut browser = Browser::open(&format!("http://{host}{path}"));
    // The summary comes behind all packets so far.
    browser.wait_until("document.body.textContent.includes('wire_bytes')");
    // A recording can be replayed, a job that runs cannot.
    browser.wait_until("document.getElementById('what-if-form').hidden && !document.getElementById('what-if').hidden");
    assert_eq!(status(&ask(&host, &format!("POST {path}replay"), &format!("Host: {host}\r\n"))), "404");
    // The browser refused nothing of the page, and no script failed.
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
    server.interrupt();
    assert_eq!(server.end().0, Some(130));
    browser.wait_until("document.documentElement.dataset.channel === 'ended'");
    let dom = browser.dom();
    let shown: Value = serde_json::from_str(&attribute(&dom, "data-counts")).unwrap();
    // The last message of the bench and the end of the connection come after the summary.
    let count = |of: &Value, part: &str, name: &str| of[part][name].as_u64().unwrap();
    let names = ["sent", "source", "repair", "feedback_repair", "received", "redundant"].map(|name| ("packets", name));
    let symbols = ["delivered", "direct", "repaired", "resent", "expired"].map(|name| ("symbols", name));
    for (part, name) in names.into_iter().chain(symbols) {
        let later = count(&shown, part, name).checked_sub(count(&summary, part, name));
        assert!(later.is_some_and(|later| later < 10), "{name}: {shown}\n{summary}");
    }
    // The summary itself is there too, with its digits in groups of three.
    for name in ["bytes", "wire_bytes"] {
        let digits = grouped(summary[name].as_u64().unwrap());
        assert!(dom.contains(&format!("<dt>{name}</dt><dd>{digits}</dd>")), "{name}: {digits}");
    }
    // The handshake's own packets are in the sum of the summary only.
    let wire = shown["wire"][0].as_u64().unwrap();
    assert!(wire.abs_diff(summary["wire_bytes"].as_u64().unwrap()) < 10_000, "{shown}\n{summary}");
    // Each packet that was sent has its mark, and links lose some.
    let marks: u64 = serde_json::from_str(&attribute(&dom, "data-marks")).unwrap();
    assert_eq!(count(&shown, "packets", "sent"), marks, "{shown}");
    let losses: u64 = serde_json::from_str(&attribute(&dom, "data-losses")).unwrap();
    assert_eq!(shown["packets"]["lost"], losses, "{shown}");
    assert!(losses > 0, "{shown}");
    // It may ask for the icon again, when nobody answers any more.
    browser.errors.retain(|error| !error.contains("ERR_CONNECTION_REFUSED"));
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
}
