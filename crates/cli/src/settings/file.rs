//! Reads a settings file: TOML with keys for all verbs at the top, and a section for each verb.

use std::borrow::Cow;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Origin, Setting, SettingsError};

/// The settings of a file, in its order. They are not checked yet.
pub fn read(path: &Path) -> Result<Vec<Setting>, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|error| SettingsError {
        origin: path.display().to_string(),
        key: String::new(),
        problem: error.to_string(),
    })?;
    parse(&text, path)
}

/// Parses `text`, the content of the file `path`.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Setting>, SettingsError> {
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line(text, span.start));
        let origin = Origin::File(path.to_owned(), line).to_string();
        SettingsError { origin, key: String::new(), problem: error.message().to_owned() }
    })?;
    let mut settings = Vec::new();
    for (key, value) in document.get_ref() {
        match value.get_ref().as_table() {
            None => settings.push(setting(text, path, None, key, value)?),
            Some(section) => {
                let verb = key.get_ref().as_ref();
                for (key, value) in section {
                    settings.push(setting(text, path, Some(verb), key, value)?);
                }
            }
        }
    }
    Ok(settings)
}

fn setting(
    text: &str,
    path: &Path,
    verb: Option<&str>,
    key: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Setting, SettingsError> {
    let origin = Origin::File(path.to_owned(), line(text, key.span().start));
    let mut setting =
        Setting { verb: verb.map(str::to_owned), key: key.get_ref().to_string(), values: Vec::new(), origin };
    setting.values = values(value.get_ref())
        .ok_or_else(|| setting.error("write a text in quotes, a whole number, true or false, or a list of texts"))?;
    Ok(setting)
}

/// The values as they would be written on the command line.
fn values(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::String(text) => Some(vec![text.to_string()]),
        DeValue::Integer(number) => Some(vec![number.as_str().to_owned()]),
        DeValue::Boolean(switch) => Some(vec![switch.to_string()]),
        DeValue::Array(list) => list.iter().map(|value| value.get_ref().as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// The line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}
