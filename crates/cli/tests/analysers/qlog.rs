//! `--qlog`: every record of a real job against the schema of `docs/qlog.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::process::{Running, lossy_link, tidewire};
use crate::{repository, schema};

/// For each event, the type of each value. Names of values that are not always there end in `?`.
type Schema = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The rows of the table of events in the document.
fn documented() -> Schema {
    let text = fs::read_to_string(repository("docs/qlog.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let typed = |value: &str| {
        let (name, kinds) = value.trim_start_matches('`').split_once("` ").unwrap();
        (name.to_owned(), kinds.trim().split(" or ").map(str::to_owned).collect())
    };
    rows.map(|(event, rest)| {
        let values = rest.split(" | ").next().unwrap();
        (event.to_owned(), values.split(", ").map(typed).collect())
    })
    .collect()
}

fn fits(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the document has the type {other}"),
    }
}

fn check(record: &Value, schema: &Schema) -> String {
    let name = record["name"].as_str().unwrap();
    let name = name.strip_prefix("tidewire:").unwrap_or(name);
    let values = schema.get(name).unwrap_or_else(|| panic!("the document has no event {name}"));
    let data = record["data"].as_object().unwrap();
    for (key, value) in data {
        let kinds = values.get(key).or_else(|| values.get(&format!("{key}?")));
        let kinds = kinds.unwrap_or_else(|| panic!("the document has no {key} of {name}"));
        assert!(kinds.iter().any(|kind| fits(value, kind)), "{value} is not {kinds:?}: {record}");
    }
    for required in values.keys().filter(|key| !key.ends_with('?')) {
        assert!(data.contains_key(required), "no {required}: {record}");
    }
    let keys: BTreeSet<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["data", "group_id", "name", "time"]));
    assert!(record["time"].as_f64().is_some_and(|time| time >= 0.0) && record["group_id"].is_string(), "{record}");
    name.to_owned()
}

/// The records of a JSON text sequence (RFC 7464).
fn records(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut parts = text.split('\u{1e}');
    assert_eq!(parts.next(), Some(""), "a sequence begins with a record separator");
    parts
        .map(|part| serde_json::from_str(part.strip_suffix('\n').expect("a newline ends each record")).unwrap())
        .collect()
}

#[test]
fn every_record_of_both_ends_is_as_documented_and_their_counts_agree_with_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let [near, far] = ["near", "far"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let mut server = Running::start(&["bench", "-s", "-1", "--json", "--listen", "127.0.0.1:0", "--qlog", &far]);
    let link = server.wait_for("link")["link"].as_str().unwrap().to_owned();
    let (_proxy, lossy) = lossy_link(&link, &["--rate", "25mbit", "--rtt", "20ms", "--loss", "5%"]);
    let client =
        tidewire(&["bench", "--json", "-c", &lossy, "-b", "4mbit", "-t", "1s", "--qlog", &near]).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let sent = schema::lines(&client.stdout).pop().unwrap();
    let received = server.wait_for("summary");
    server.end();

    let schema = documented();
    assert!(schema.len() >= 20, "{}", schema.len());
    let mut counts = Vec::new();
    for path in [&near, &far] {
        let mut records = records(&fs::read(path).unwrap());
        let head = records.remove(0);
        assert_eq!(
            (&head["serialization_format"], &head["file_schema"]),
            (&"JSON-SEQ".into(), &"urn:ietf:params:qlog:file:sequential".into())
        );
        let own = head["trace"]["event_schemas"][0].as_str().unwrap();
        assert!(own.ends_with("docs/qlog.md#1"), "{own}");
        let mut count = BTreeMap::<String, u64>::new();
        for record in &records {
            let name = check(record, &schema);
            let data = &record["data"];
            let on_feedback = data["on_feedback"].as_bool().or(data["again"].as_bool()).unwrap_or(false);
            let content = data["content"].as_str().map_or(String::new(), |content| format!("/{content}"));
            let content = if on_feedback { "/on_feedback" } else { &content };
            *count.entry(format!("{name}{content}")).or_default() += 1;
        }
        counts.push(count);
    }
    let [near, far] = [&counts[0], &counts[1]];
    let packets = |name: &str| sent["packets"][name].as_u64().unwrap();
    assert_eq!(near["packet_sent/source"], packets("source"), "{near:?}");
    // Repairs may still leave between the summary and the close.
    let late = |least: u64| least..=least + 3;
    assert!(late(packets("repair")).contains(&near["packet_sent/repair"]), "{near:?}");
    // A source symbol that is sent again answers feedback.
    let on_feedback = near.get("packet_sent/on_feedback").copied().unwrap_or_default();
    assert!(late(packets("feedback_repair")).contains(&on_feedback), "{near:?}");
    // The last words of the peer come after the summary.
    let delivered = received["symbols"]["delivered"].as_u64().unwrap();
    assert!((delivered..=delivered + 3).contains(&far["symbol_passed"]), "{far:?}");
    for name in [
        "connected",
        "agreed",
        "closed",
        "rate",
        "recovery:congestion_state_updated",
        "packet_lost",
        "packet_acknowledged",
        "feedback_received",
    ] {
        assert!(near.contains_key(name), "no {name} in {near:?}");
    }
    assert!(far.contains_key("symbol_repaired") && far.contains_key("feedback_sent"), "{far:?}");
}

#[test]
fn a_file_that_cannot_be_written_ends_the_verb_before_the_job() {
    let output = tidewire(&["bench", "-s", "--listen", "127.0.0.1:0", "--qlog", "/nowhere/q"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(7) && said.contains("cannot write --qlog `/nowhere/q`"), "{said}");
}
