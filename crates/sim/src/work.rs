//! The settings of flows and of the two ends as text, for scenario files. [`crate::settings`] has those of
//! the link.

use std::path::Path;

use tidewire_proto::config::ConfigBuilder;
use tidewire_proto::wire::parse_code;

use crate::load::Flow;
use crate::pair::End;
use crate::settings::SettingError;
use crate::video::{FrameTrace, Pace, Synthetic, Video};
use tidewire_units::{Probability, Rate, parse_duration, parse_size};

/// Keys of a `[[flow]]`. `from` is required, and either `bytes` or `video`.
pub const FLOW_KEYS: [&str; 11] =
    ["from", "bytes", "rate", "record", "reads", "deaf", "start", "video", "pace", "startup", "resume"];

/// Keys of a flow that a video replaces.
pub const NOT_WITH_VIDEO: [&str; 3] = ["bytes", "rate", "record"];

/// Keys of a flow that only a video has. They are set after `video`.
pub const VIDEO_KEYS: [&str; 3] = ["pace", "startup", "resume"];

/// Keys of `[near]` and `[far]`.
pub const END_KEYS: [&str; 8] =
    ["profile", "code", "redundancy", "rate_control", "latency", "deliver", "max_overhead", "max_rate"];

/// Sets `key`, one of [`FLOW_KEYS`]. Files that the text names are looked up in `folder`. A computed video
/// follows from `seed`.
///
/// # Errors
/// See [`SettingError`].
pub fn set_flow(flow: &mut Flow, key: &str, text: &str, folder: &Path, seed: u64) -> Result<(), SettingError> {
    match key {
        "video" => *flow = with_video(flow, parse_video(text.trim(), folder, seed)?),
        _ if VIDEO_KEYS.contains(&key) => {
            let without = || SettingError::Refused("this key is for a video: set video too".to_owned());
            set_video(flow.video.as_mut().ok_or_else(without)?, key, text)?;
        }
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

fn with_video(flow: &Flow, video: Video) -> Flow {
    Flow { bytes: video.trace.bytes(), video: Some(video), ..flow.clone() }
}

fn set_video(video: &mut Video, key: &str, text: &str) -> Result<(), SettingError> {
    match key {
        "startup" => video.rules.startup = parse_duration(text)?,
        "resume" => video.rules.resume = parse_duration(text)?,
        _ => video.pace = parse_pace(text)?,
    }
    Ok(())
}

fn parse_pace(text: &str) -> Result<Pace, SettingError> {
    match text.trim() {
        "live" => Ok(Pace::Live),
        "best-effort" => Ok(Pace::BestEffort),
        other => Err(SettingError::Refused(format!("\"{other}\" is no pace; write \"best-effort\" or \"live\""))),
    }
}

/// A trace from a file, or a computed one: its rate and its duration.
fn parse_video(text: &str, folder: &Path, seed: u64) -> Result<Video, SettingError> {
    if let Some(file) = text.strip_prefix("trace:") {
        let path = folder.join(file);
        let trace = FrameTrace::read(&path);
        let refuse = |error: &dyn core::error::Error| SettingError::File { path, reason: error.to_string() };
        return trace.map(Video::best_effort).map_err(|error| refuse(&error));
    }
    let form = || SettingError::Form { text: text.to_owned(), example: "8mbit,60s" };
    let (rate, time) = text.split_once(',').ok_or_else(form)?;
    let synthetic = Synthetic::new(rate.parse::<Rate>()?.bits_per_second(), seed);
    synthetic.trace(parse_duration(time)?).map(Video::best_effort).map_err(|error| refused(&error))
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
