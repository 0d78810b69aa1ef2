//! The settings of policers and slots as text, and what slots need.
//!
//! [`LinkConfig::set`] calls the parsers. Call [`LinkConfig::check`] after all keys of
//! a link are set.

use core::time::Duration;

use super::SettingError;
use crate::duplex::DuplexConfig;
use crate::link::{Capacity, LinkConfig, Police, PoliceStep, Slots, TokenBucket};
use tidewire_units::{Rate, parse_duration, parse_size};

impl LinkConfig {
    /// Checks what concerns several settings.
    ///
    /// # Errors
    /// Refuses slots on a link without a fixed rate.
    pub fn check(&self) -> Result<(), SettingError> {
        match (&self.capacity, self.mac.slots) {
            (Capacity::Fixed(_), _) | (_, None) => Ok(()),
            (Capacity::Unlimited | Capacity::Trace(_), Some(_)) => Err(SettingError::Refused(
                "slots need a fixed rate: write rate = \"25mbit\" or so, or slot = \"none\"".to_owned(),
            )),
        }
    }
}

impl DuplexConfig {
    /// Checks what concerns several settings of a direction.
    ///
    /// # Errors
    /// See [`LinkConfig::check`].
    pub fn check(&self) -> Result<(), SettingError> {
        self.forward.check()?;
        self.back.check()
    }
}

/// Reads `10mbit:50kB after 5MB, 20s.. none`.
pub(super) fn parse_police(text: &str) -> Result<Police, SettingError> {
    let steps: Result<Vec<_>, _> = text.split(',').map(parse_step).collect();
    Police::new(steps?).map_err(|error| SettingError::Refused(error.to_string()))
}

fn parse_step(text: &str) -> Result<PoliceStep, SettingError> {
    let (from, bucket) = match text.split_once("..") {
        Some((from, bucket)) => (parse_duration(from)?, bucket.trim()),
        None => (Duration::ZERO, text.trim()),
    };
    let bucket = if bucket == "none" { None } else { Some(parse_bucket(bucket)?) };
    Ok(PoliceStep { from, bucket })
}

fn parse_bucket(text: &str) -> Result<TokenBucket, SettingError> {
    let (bucket, after) = match text.split_once("after") {
        Some((bucket, after)) => (bucket, parse_size(after)?),
        None => (text, 0),
    };
    let form = || SettingError::form(text, "10mbit:50kB after 5MB");
    let (rate, burst) = bucket.split_once(':').ok_or_else(form)?;
    Ok(TokenBucket { rate: rate.parse::<Rate>()?, burst: parse_size(burst)?, after })
}

/// Reads `10ms:1ms`.
pub(super) fn parse_slots(text: &str) -> Result<Option<Slots>, SettingError> {
    if text == "none" {
        return Ok(None);
    }
    let (period, open) = text.split_once(':').ok_or_else(|| SettingError::form(text, "10ms:1ms"))?;
    let slots = Slots::new(parse_duration(period)?, parse_duration(open)?);
    slots.map(Some).map_err(|error| SettingError::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn set(key: &str, text: &str) -> Result<LinkConfig, SettingError> {
        let mut config = LinkConfig::default();
        config.set(key, text, Path::new("")).map(|()| config)
    }

    fn refused(key: &str, text: &str) -> String {
        set(key, text).unwrap_err().to_string()
    }

    fn step(from_ms: u64, bucket: Option<(u64, u64, u64)>) -> PoliceStep {
        let bucket = bucket.map(|(megabits, burst, after)| {
            let rate = Rate::from_bits_per_second(1_000_000 * megabits).unwrap();
            TokenBucket { rate, burst, after }
        });
        PoliceStep { from: Duration::from_millis(from_ms), bucket }
    }

    #[test]
    fn policers_and_slots_are_read() {
        let steps = |text| set("police", text).unwrap().police.steps().to_vec();
        assert_eq!(steps("10mbit:50kB"), [step(0, Some((10, 50_000, 0)))]);
        assert_eq!(steps("10mbit : 50kB after 5MB"), [step(0, Some((10, 50_000, 5_000_000)))]);
        assert_eq!(
            steps("1gbit:9B,2s.. 40mbit:60kB after 1MB , 5s..none"),
            [step(0, Some((1_000, 9, 0))), step(2_000, Some((40, 60_000, 1_000_000))), step(5_000, None)]
        );
        assert_eq!(steps("500ms.. 10mbit:50kB"), [step(500, Some((10, 50_000, 0)))]);
        assert_eq!(steps("none"), [step(0, None)]);
        let slots = set("slot", "10ms:1ms").unwrap().mac.slots.unwrap();
        assert_eq!((slots.period(), slots.open()), (Duration::from_millis(10), Duration::from_millis(1)));
        assert_eq!(set("slot", "none").unwrap().mac.slots, None);
    }

    #[test]
    fn refusals_say_what_to_write() {
        assert_eq!(refused("police", "10mbit"), r#""10mbit" is incomplete; write for example "10mbit:50kB after 5MB""#);
        assert!(refused("police", "10mbit:50").contains("has no unit"));
        assert!(refused("police", "10:50kB").contains("has no unit"));
        assert!(refused("police", "10mbit:0B").starts_with("a bucket of 0 bytes from 0ns on would pass nothing: "));
        assert!(refused("police", "10mbit:50kB, none").starts_with("a step from 0ns on follows one from 0ns on: "));
        assert!(refused("police", "2s.. none, 1s.. 1mbit:1kB").contains("each step needs a later time"));
        assert!(refused("police", "").contains("is incomplete"));
        assert!(refused("police", "10mbit:50kB after").contains("is not a size"));
        assert_eq!(refused("slot", "10ms"), r#""10ms" is incomplete; write for example "10ms:1ms""#);
        assert!(refused("slot", "10ms:0ms").contains("carries nothing: lengthen the open time"));
        assert!(refused("slot", "10ms:11ms").contains("cannot be open for 11ms of every 10ms: shorten"));
        assert!(refused("slot", "0ms:0ms").contains("carries nothing"));
    }

    #[test]
    fn slots_need_a_fixed_rate() {
        let mut both = DuplexConfig::default();
        both.check().unwrap();
        both.back = set("slot", "10ms:1ms").unwrap();
        let text = "slots need a fixed rate: write rate = \"25mbit\" or so, or slot = \"none\"";
        assert_eq!(both.check().unwrap_err().to_string(), text);
        both.back.set("rate", "25mbit", Path::new("")).unwrap();
        both.check().unwrap();
    }
}
