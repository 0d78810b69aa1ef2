//! The pages about `--json` follow its schema: the table of events, `docs/data/json-events.csv`, has what the
//! schema says, and `docs/json.md` names every event.
//!
//! `TIDEWIRE_WRITE=1 cargo test -p tidewire-command --test schema` writes the table anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tidewire_figures::csv;

#[test]
fn the_pages_have_every_event_of_the_schema() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap_or_default();
    let schema: Value = serde_json::from_str(&read("json-schema.json")).unwrap();
    let table = table(&schema);
    if std::env::var_os("TIDEWIRE_WRITE").is_some() {
        fs::write(docs.join("data/json-events.csv"), &table).unwrap();
    }
    assert!(
        read("data/json-events.csv") == table,
        "the table is old: the first lines of this file say how to write it"
    );
    let page = read("json.md");
    for (name, _) in events(&schema) {
        assert!(page.contains(&format!("`{name}`")), "write the event {name} into docs/json.md");
    }
}

/// In the order of their names, whatever order `serde_json` keeps.
fn events(schema: &Value) -> BTreeMap<&str, &Value> {
    let all = schema["$defs"].as_object().into_iter().flatten();
    all.filter_map(|(name, event)| Some((name.strip_suffix("_event")?, event))).collect()
}

/// A line for each event, with its keys and what they mean.
fn table(schema: &Value) -> String {
    let lines = events(schema).into_iter().map(|(name, event)| {
        let keys: BTreeMap<_, _> = event["properties"].as_object().into_iter().flatten().collect();
        let keys = keys.into_iter().filter(|(key, _)| !matches!(key.as_str(), "v" | "event"));
        let keys: Vec<_> = keys.map(|(key, value)| told(key, value, schema)).collect();
        csv::line([&format!("`{name}`"), event["description"].as_str().unwrap_or_default(), &keys.join("; ")])
    });
    csv::line(["event", "what it says", "keys"]) + &lines.collect::<String>()
}

/// A key and its description: its own, or that of the definition that it refers to.
fn told(key: &str, value: &Value, schema: &Value) -> String {
    let definition =
        value["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")).map(|name| &schema["$defs"][name]);
    match value["description"].as_str().or_else(|| definition?["description"].as_str()) {
        Some(text) => format!("`{key}`: {text}"),
        None => format!("`{key}`"),
    }
}
