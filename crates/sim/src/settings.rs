//! The settings of a link as text: one grammar for scenario files and for the options of `tidewire-lab link`.
//!
//! It is called while a configuration is read, never while a link operates. A setting is a key of
//! [`SETTINGS`] and a text. [`LinkConfig::set`] replaces the old value, or leaves it unchanged if the text is
//! refused.

mod shaping;

use core::fmt;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidewire_proto::codel::CodelConfig;
use tidewire_units::{Probability, Rate, UnitError, parse_duration, parse_size, unknown_key};

use crate::duplex::DuplexConfig;
use crate::link::{
    Arq, Blackout, Capacity, Discipline, EmptyBlackout, Gilbert, ImpossibleBurst, LinkConfig, Loss, Queue, RateTrace,
    Reorder,
};

/// One setting of a link, for help texts.
#[derive(Clone, Copy, Debug)]
pub struct LinkSetting {
    /// Its name.
    pub key: &'static str,
    /// Example values, one for each form.
    pub examples: &'static [&'static str],
    /// What it does.
    pub meaning: &'static str,
}

/// All settings of a direction of a link.
pub const SETTINGS: [LinkSetting; 17] = {
    const fn setting(key: &'static str, examples: &'static [&'static str], meaning: &'static str) -> LinkSetting {
        LinkSetting { key, examples, meaning }
    }
    [
        setting("rate", &["25mbit", "trace:FILE", "unlimited"], "IP bits per second, or a mahimahi trace"),
        setting("queue", &["60ms", "150kB"], "drop-tail limit; by default what the rate carries in a round trip"),
        setting(
            "discipline",
            &["codel", "codel:5ms,100ms", "drop-tail"],
            "what the queue does before it is full; CoDel has a target and an interval (RFC 8289)",
        ),
        setting(
            "mark",
            &["5ms", "none"],
            "what waits longer carries a congestion mark (ECN), if its sender knows them",
        ),
        setting("delay", &["30ms"], "least one-way time"),
        setting("jitter", &["5ms"], "random time on top of the delay, from 0 to this; keeps order"),
        setting("reorder", &["2%,3ms", "none"], "share of the datagrams that is held back, and for how long"),
        setting("duplicate", &["1%"], "share of the datagrams that arrives twice"),
        setting("corrupt", &["0.1%"], "share of the datagrams that arrives with one byte changed"),
        setting(
            "loss",
            &["10%", "gilbert:10%,4", "trace:FILE", "none"],
            "independent, in bursts of a mean length, or as recorded (0 passes, 1 is lost)",
        ),
        setting(
            "arq",
            &["7,2ms", "7,2ms,unordered", "none"],
            "how often the link sends a lost packet again, and the time to each attempt; keeps order by default",
        ),
        setting("medium", &["radio", "none"], "links with the same name take turns, one transmits at a time"),
        setting(
            "blackout",
            &["2s..2.5s", "2s..2.5s every 10s", "1s..2s, 4s..5s", "none"],
            "when nothing passes, since the start",
        ),
        setting(
            "police",
            &["10mbit:50kB", "10mbit:50kB after 5MB", "10mbit:50kB, 2s.. 40mbit:50kB, 5s.. none", "none"],
            "rate and bucket of a policer, which drops what exceeds them; from a volume or from times on",
        ),
        setting("slot", &["10ms:1ms", "none"], "the link transmits only in the first part of each period"),
        setting("mtu", &["1400B", "none"], "longest IP packet that passes"),
        setting("headers", &["28B"], "IP and UDP bytes counted on top of each payload"),
    ]
};

/// The direction that a setting applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The direction of the data.
    Forward,
    /// The direction of the feedback.
    Back,
    /// Both directions, each separately: `rate` is not shared, and `delay` is one-way.
    Both,
}

impl DuplexConfig {
    /// Sets `key` in one direction or both. For both directions there is one more key, `rtt`, which is split
    /// evenly. Files that the text names are looked up in `folder`.
    ///
    /// # Errors
    /// See [`SettingError`].
    pub fn set(&mut self, direction: Direction, key: &str, text: &str, folder: &Path) -> Result<(), SettingError> {
        match direction {
            Direction::Forward => self.forward.set(key, text, folder),
            Direction::Back => self.back.set(key, text, folder),
            Direction::Both if key == "rtt" => {
                self.set_rtt(parse_duration(text)?);
                Ok(())
            }
            Direction::Both => {
                self.back.set(key, text, folder).map_err(SettingError::for_both)?;
                self.forward.set(key, text, folder)
            }
        }
    }
}

impl LinkConfig {
    /// Sets `key`, one of [`SETTINGS`]. Files that the text names are looked up in `folder`.
    ///
    /// # Errors
    /// See [`SettingError`].
    pub fn set(&mut self, key: &str, text: &str, folder: &Path) -> Result<(), SettingError> {
        let text = text.trim();
        match key {
            "rate" => self.capacity = parse_capacity(text, folder)?,
            "queue" => self.queue = Some(parse_queue(text)?),
            "discipline" => self.aqm.discipline = parse_discipline(text)?,
            "arq" => self.mac.arq = parse_arq(text)?,
            "medium" => self.mac.medium = if text == "none" { None } else { Some(text.into()) },
            "slot" => self.mac.slots = shaping::parse_slots(text)?,
            "mark" if text == "none" => self.aqm.mark = None,
            "mark" => self.aqm.mark = Some(parse_duration(text)?),
            "delay" => self.delay = parse_duration(text)?,
            "jitter" => self.jitter = parse_duration(text)?,
            "reorder" => self.reorder = parse_reorder(text)?,
            "duplicate" => self.duplicate = text.parse()?,
            "corrupt" => self.corrupt = text.parse()?,
            "loss" => self.loss = parse_loss(text, folder)?,
            "blackout" => self.blackouts = parse_blackouts(text)?,
            "police" => self.police = shaping::parse_police(text)?,
            "mtu" if text == "none" => self.mtu = None,
            "mtu" => self.mtu = Some(parse_length(text)?),
            "headers" => self.headers = parse_length(text)?,
            _ => return Err(SettingError::unknown_key(key)),
        }
        Ok(())
    }
}

fn parse_capacity(text: &str, folder: &Path) -> Result<Capacity, SettingError> {
    if text == "unlimited" {
        return Ok(Capacity::Unlimited);
    }
    let Some(file) = text.strip_prefix("trace:") else {
        return Ok(Capacity::Fixed(text.parse::<Rate>()?));
    };
    let path = folder.join(file);
    let trace = RateTrace::parse(&read(&path)?).map_err(|error| SettingError::file(path, error))?;
    Ok(Capacity::Trace(Arc::new(trace)))
}

/// A size ends in `B`, and no time does.
fn parse_queue(text: &str) -> Result<Queue, SettingError> {
    if text.ends_with('B') { Ok(Queue::Bytes(parse_size(text)?)) } else { Ok(Queue::Time(parse_duration(text)?)) }
}

fn parse_discipline(text: &str) -> Result<Discipline, SettingError> {
    if text == "drop-tail" {
        return Ok(Discipline::DropTail);
    }
    let form = || SettingError::form(text, "codel:5ms,100ms");
    let times = text.strip_prefix("codel").ok_or_else(form)?;
    if times.is_empty() {
        return Ok(Discipline::Codel(CodelConfig::default()));
    }
    let (target, interval) = times.strip_prefix(':').and_then(|times| times.split_once(',')).ok_or_else(form)?;
    Ok(Discipline::Codel(CodelConfig::new(parse_duration(target)?, parse_duration(interval)?)))
}

fn parse_arq(text: &str) -> Result<Option<Arq>, SettingError> {
    if text == "none" {
        return Ok(None);
    }
    let form = || SettingError::form(text, "7,2ms");
    let mut parts = text.split(',').map(str::trim);
    let retries = parts.next().and_then(|retries| retries.parse().ok()).filter(|&retries| retries <= MOST_RETRIES);
    let (retries, delay) = (retries.ok_or_else(form)?, parse_duration(parts.next().ok_or_else(form)?)?);
    let in_order = match (parts.next(), parts.next()) {
        (None, _) => true,
        (Some("unordered"), None) => false,
        _ => return Err(SettingError::form(text, "7,2ms,unordered")),
    };
    Ok(Some(Arq { retries, delay, in_order }))
}

/// Most attempts after the first. Chosen: above the limits of 802.11 (7), and a datagram still has an end.
const MOST_RETRIES: u32 = 255;

fn parse_reorder(text: &str) -> Result<Reorder, SettingError> {
    if text == "none" {
        return Ok(Reorder::default());
    }
    let (probability, by) = text.split_once(',').ok_or_else(|| SettingError::form(text, "2%,3ms"))?;
    Ok(Reorder { probability: probability.parse()?, by: parse_duration(by)? })
}

fn parse_loss(text: &str, folder: &Path) -> Result<Loss, SettingError> {
    if text == "none" {
        return Ok(Loss::None);
    }
    if let Some(file) = text.strip_prefix("trace:") {
        return parse_loss_trace(folder.join(file));
    }
    let Some(pair) = text.strip_prefix("gilbert:") else {
        return Ok(Loss::Iid(text.parse()?));
    };
    let form = || SettingError::form(text, "gilbert:10%,4");
    let (loss, burst) = pair.split_once(',').ok_or_else(form)?;
    let loss: Probability = loss.parse()?;
    let burst: f64 = burst.trim().parse().map_err(|_| form())?;
    Ok(Loss::Gilbert(Gilbert::new(loss, burst)?))
}

/// One character per datagram: `0` passes, `1` is lost. White space is skipped.
fn parse_loss_trace(path: PathBuf) -> Result<Loss, SettingError> {
    let text = read(&path)?;
    let mut fates = Vec::new();
    for (line, marks) in (1..).zip(text.lines()) {
        for mark in marks.chars().filter(|mark| !mark.is_whitespace()) {
            match mark {
                '0' | '1' => fates.push(mark == '1'),
                _ => return Err(SettingError::file(path, format_args!("line {line} has a `{mark}`: {LOSS_TRACE}"))),
            }
        }
    }
    if fates.is_empty() {
        return Err(SettingError::file(path, format_args!("it is empty: {LOSS_TRACE}")));
    }
    Ok(Loss::Trace(fates.into()))
}

const LOSS_TRACE: &str = "a loss trace is a row of 0 (passes) and 1 (lost), such as 00010110";

fn parse_blackouts(text: &str) -> Result<Vec<Blackout>, SettingError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_blackout).collect()
}

fn parse_blackout(text: &str) -> Result<Blackout, SettingError> {
    let (span, period) = match text.split_once("every") {
        Some((span, period)) => (span, Some(parse_duration(period)?)),
        None => (text, None),
    };
    let (start, end) = span.split_once("..").ok_or_else(|| SettingError::form(text, "2s..2.5s every 10s"))?;
    let (start, end): (Duration, Duration) = (parse_duration(start)?, parse_duration(end)?);
    Ok(match period {
        Some(period) => Blackout::periodic(start, end, period)?,
        None => Blackout::once(start, end)?,
    })
}

/// A length in bytes that fits into memory.
fn parse_length(text: &str) -> Result<usize, SettingError> {
    Ok(usize::try_from(parse_size(text)?).unwrap_or(usize::MAX))
}

fn read(path: &Path) -> Result<String, SettingError> {
    std::fs::read_to_string(path).map_err(|error| SettingError::file(path.to_owned(), error))
}

impl fmt::Display for Capacity {
    /// The form that [`LinkConfig::set`] reads, except for a trace, whose file name is not kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Fixed(rate) => rate.fmt(f),
            Self::Trace(_) => f.write_str("trace"),
        }
    }
}

impl fmt::Display for Loss {
    /// The form that [`LinkConfig::set`] reads, except for a trace, whose file name is not kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Iid(probability) => probability.fmt(f),
            Self::Gilbert(gilbert) => write!(f, "gilbert:{},{}", gilbert.loss(), gilbert.mean_burst()),
            Self::Trace(_) => f.write_str("trace"),
        }
    }
}

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A link has no setting of this name.
    #[error("{}", unknown_key(.key, .allowed))]
    UnknownKey {
        /// The name.
        key: String,
        /// All names.
        allowed: Vec<&'static str>,
    },
    /// The value does not have the form of this setting.
    #[error("\"{text}\" is incomplete; write for example \"{example}\"")]
    Form {
        /// The value.
        text: String,
        /// A valid value.
        example: &'static str,
    },
    /// A quantity in the value is wrong.
    #[error("{0}")]
    Unit(UnitError),
    /// No Gilbert model has this loss rate and burst length.
    #[error("{0}")]
    Burst(ImpossibleBurst),
    /// A blackout covers nothing or everything.
    #[error("{0}")]
    Blackout(EmptyBlackout),
    /// The protocol refuses the value, for this reason.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be read or is not a trace.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl SettingError {
    fn unknown_key(key: &str) -> Self {
        Self::UnknownKey { key: key.to_owned(), allowed: SETTINGS.iter().map(|setting| setting.key).collect() }
    }

    /// The same error where `rtt` is allowed too.
    fn for_both(mut self) -> Self {
        if let Self::UnknownKey { allowed, .. } = &mut self {
            allowed.push("rtt");
        }
        self
    }

    fn form(text: &str, example: &'static str) -> Self {
        Self::Form { text: text.to_owned(), example }
    }

    fn file(path: PathBuf, reason: impl fmt::Display) -> Self {
        Self::File { path, reason: reason.to_string() }
    }
}

impl From<UnitError> for SettingError {
    fn from(error: UnitError) -> Self {
        Self::Unit(error)
    }
}

impl From<ImpossibleBurst> for SettingError {
    fn from(error: ImpossibleBurst) -> Self {
        Self::Burst(error)
    }
}

impl From<EmptyBlackout> for SettingError {
    fn from(error: EmptyBlackout) -> Self {
        Self::Blackout(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, text: &str) -> Result<LinkConfig, SettingError> {
        let mut config = LinkConfig::default();
        config.set(key, text, Path::new("/nowhere")).map(|()| config)
    }

    fn refused(key: &str, text: &str) -> String {
        set(key, text).unwrap_err().to_string()
    }

    #[test]
    fn every_setting_reads_its_examples() {
        for LinkSetting { key, examples, .. } in SETTINGS {
            for example in examples {
                match set(key, example) {
                    Ok(_) => assert!(!example.starts_with("trace:")),
                    Err(error) => assert!(matches!(error, SettingError::File { .. }), "{key} = {example}: {error}"),
                }
            }
        }
    }

    #[test]
    fn values_arrive_in_their_fields() {
        assert_eq!(set("queue", "150kB").unwrap().queue, Some(Queue::Bytes(150_000)));
        assert_eq!(set("queue", "60ms").unwrap().queue, Some(Queue::Time(Duration::from_millis(60))));
        assert_eq!(set("mtu", "1400B").unwrap().mtu, Some(1_400));
        let arq = set("arq", "7, 2ms, unordered").unwrap().mac.arq.unwrap();
        assert_eq!((arq.retries, arq.delay.as_millis(), arq.in_order), (7, 2, false));
        assert!(set("arq", "3,1ms").unwrap().mac.arq.unwrap().in_order);
        assert_eq!(set("arq", "none").unwrap().mac, set("medium", "none").unwrap().mac);
        let Discipline::Codel(codel) = set("discipline", "codel:2ms,50ms").unwrap().aqm.discipline else { panic!() };
        assert_eq!((codel.target.as_millis(), codel.interval.as_millis()), (2, 50));
        let reorder = set("reorder", "2%, 3ms").unwrap().reorder;
        assert_eq!((reorder.probability.value(), reorder.by), (0.02, Duration::from_millis(3)));
        let blackouts = set("blackout", "2s..2.5s, 5s..6s every 30s").unwrap().blackouts;
        let seconds = Duration::from_secs;
        let second = Blackout::periodic(seconds(5), seconds(6), seconds(30)).unwrap();
        assert_eq!(blackouts, [Blackout::once(seconds(2), Duration::from_millis(2_500)).unwrap(), second]);
    }

    #[test]
    fn loss_and_rate_print_as_they_are_read() {
        for text in ["none", "10%", "gilbert:10%,4", "gilbert:2.5%,1.5"] {
            assert_eq!(set("loss", text).unwrap().loss.to_string(), text);
        }
        for text in ["unlimited", "25mbit", "1.5gbit"] {
            assert_eq!(set("rate", text).unwrap().capacity.to_string(), text);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        assert!(refused("loss", "0.1").starts_with(r#""0.1" has no unit; write for example "10%""#));
        assert!(refused("loss", "110%").contains("out of range (0% to 100%)"));
        assert_eq!(refused("loss", "gilbert:10%"), r#""gilbert:10%" is incomplete; write for example "gilbert:10%,4""#);
        assert_eq!(
            refused("loss", "gilbert:90%,4"),
            "a mean burst of 4 is impossible at 90% loss: it must be at least 9.000"
        );
        assert!(refused("loss", "trace:missing.txt").starts_with("/nowhere/missing.txt: "));
        assert!(refused("blackout", "2s").contains(r#"write for example "2s..2.5s every 10s""#));
        assert!(refused("blackout", "3s..2s").contains("takes no time"));
        assert!(refused("queue", "60").contains("has no unit"));
        assert_eq!(refused("arq", "7"), r#""7" is incomplete; write for example "7,2ms""#);
        assert!(refused("arq", "7,2ms,fast").contains(r#"write for example "7,2ms,unordered""#));
        assert!(refused("arq", "300,2ms").contains(r#"write for example "7,2ms""#));
        assert!(refused("arq", "7,2").contains("has no unit"));
        assert!(refused("discipline", "red").contains(r#"write for example "codel:5ms,100ms""#));
        assert!(refused("discipline", "codel:5,100").contains("has no unit"));
        assert!(refused("los", "1%").starts_with(r#"no such key; did you mean "loss"? (allowed: rate, queue"#));
        assert!(refused("bandwidth", "1%").starts_with("no such key (allowed: rate, "));
    }

    #[test]
    fn a_round_trip_belongs_to_both_directions() {
        let mut both = DuplexConfig::default();
        let folder = Path::new("");
        both.set(Direction::Both, "rtt", "60ms", folder).unwrap();
        assert_eq!(both.back.delay, Duration::from_millis(30));
        both.set(Direction::Forward, "loss", "5%", folder).unwrap();
        assert_eq!((both.forward.loss.to_string().as_str(), &both.back.loss), ("5%", &Loss::None));
        let refused = |direction, key| both.clone().set(direction, key, "60ms", folder).unwrap_err().to_string();
        assert!(refused(Direction::Forward, "rtt").ends_with("mtu, headers)"));
        assert!(refused(Direction::Both, "rt").starts_with("no such key; did you mean \"rtt\"?"));
    }
}
