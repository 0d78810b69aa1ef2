//! The settings of flows and of the two ends as text, for scenario files. [`crate::settings`] has those of
//! the link.

use tidewire_proto::config::ConfigBuilder;
use tidewire_proto::wire::parse_code;

use crate::load::Flow;
use crate::pair::End;
use crate::settings::SettingError;
use tidewire_units::{Probability, Rate, parse_duration, parse_size};

/// Keys of a `[[flow]]`. `from` and `bytes` are required.
pub const FLOW_KEYS: [&str; 7] = ["from", "bytes", "rate", "record", "reads", "deaf", "start"];

/// Keys of `[near]` and `[far]`.
pub const END_KEYS: [&str; 8] =
    ["profile", "code", "redundancy", "rate_control", "latency", "deliver", "max_overhead", "max_rate"];

/// Sets `key`, one of [`FLOW_KEYS`].
///
/// # Errors
/// See [`SettingError`].
pub fn set_flow(flow: &mut Flow, key: &str, text: &str) -> Result<(), SettingError> {
    match key {
        "from" => flow.from = parse_end(text)?,
        "bytes" => flow.bytes = parse_size(text)?,
        "rate" => flow.rate = Some(bytes_per_second(text)?),
        "record" => flow.record = parse_size(text)?.max(1),
        "reads" => flow.reads = Some(bytes_per_second(text)?),
        "deaf" => flow.deaf = parse_duration(text)?,
        "start" => flow.start = parse_duration(text)?,
        _ => return Err(SettingError::UnknownKey { key: key.to_owned(), allowed: FLOW_KEYS.to_vec() }),
    }
    Ok(())
}

/// Sets `key`, one of [`END_KEYS`]. Whether the choices of the profile fit together is checked when all keys
/// are set.
///
/// # Errors
/// See [`SettingError`].
pub fn set_end(config: &mut ConfigBuilder, key: &str, text: &str) -> Result<(), SettingError> {
    let changed = config.clone();
    let changed = match key {
        "profile" => changed.profile(text.parse().map_err(|e| refused(&e))?),
        "code" => changed.code(parse_code(text).map_err(SettingError::Refused)?),
        "redundancy" => changed.redundancy(text.parse().map_err(|e| refused(&e))?),
        "rate_control" => changed.rate_control(text.parse().map_err(|e| refused(&e))?),
        "max_overhead" => changed.max_overhead(text.parse::<Probability>()?.value()),
        "latency" => changed.latency(Some(parse_duration(text)?)),
        "deliver" => changed.deliver(text.parse::<Probability>()?.value()),
        "max_rate" => changed.max_rate(Some(text.parse::<Rate>()?.bits_per_second())),
        _ => return Err(SettingError::UnknownKey { key: key.to_owned(), allowed: END_KEYS.to_vec() }),
    };
    changed.check_ranges().map_err(|e| refused(&e))?;
    *config = changed;
    Ok(())
}

fn refused(error: &dyn core::error::Error) -> SettingError {
    SettingError::Refused(error.to_string())
}

fn parse_end(text: &str) -> Result<End, SettingError> {
    match text.trim() {
        "near" => Ok(End::Near),
        "far" => Ok(End::Far),
        _ => Err(SettingError::Form { text: text.to_owned(), example: "near" }),
    }
}

fn bytes_per_second(text: &str) -> Result<u64, SettingError> {
    Ok((text.parse::<Rate>()?.bits_per_second() / 8).max(1))
}
