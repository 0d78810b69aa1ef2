//! Checks lines of `--json` against `docs/json-schema.json`: each event is known, has every required key and
//! no other key at any depth, and each value has its type. Understands only the keywords that the schema
//! uses.

use serde_json::Value;

const SCHEMA: &str = include_str!("../../../../docs/json-schema.json");

/// Parses the lines and checks each.
pub fn lines(stdout: &[u8]) -> Vec<Value> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let text = std::str::from_utf8(stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let name = line["event"].as_str().unwrap_or_else(|| panic!("no event in {line}"));
        let event = &schema["$defs"][format!("{name}_event")];
        assert!(event.is_object(), "the schema does not know the event {name}");
        check(line, event, &schema, name);
    }
    lines
}

fn check(value: &Value, schema: &Value, root: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        return check(value, &root["$defs"][name], root, at);
    }
    if !schema["const"].is_null() {
        assert_eq!(*value, schema["const"], "at {at}");
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        many => many.as_array().unwrap_or_else(|| panic!("no type at {at}")).iter().filter_map(Value::as_str).collect(),
    };
    let fits = |name: &&str| match *name {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        other => panic!("the schema has the type {other} at {at}"),
    };
    assert!(types.iter().any(fits), "{value} at {at} is not {types:?}");
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], root, &format!("{at}.{index}"));
    }
    let Some(object) = value.as_object() else { return };
    for key in schema["required"].as_array().unwrap() {
        assert!(object.contains_key(key.as_str().unwrap()), "{key} is missing at {at}");
    }
    for (key, value) in object {
        let known = &schema["properties"][key];
        assert!(known.is_object(), "the schema does not know {key} at {at}");
        check(value, known, root, &format!("{at}.{key}"));
    }
}
