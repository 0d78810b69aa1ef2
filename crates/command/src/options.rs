//! The options that all verbs share: coding, rate and output.
//!
//! Clap flattens them into the arguments of each verb and parses their values. A wrong value ends the program
//! with exit code 2 and a correct example, before a socket is opened.

use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use tidewire::link::{Link, LinkError, parse_latency};
use tidewire::{Code, Config, ConfigError, Profile, RateControl, Redundancy};
use tidewire_proto::wire::parse_code;
use tidewire_units::{Probability, Rate, parse_deliver};

use crate::report::Console;

/// The heading of the options that only readers of the papers need.
const POLICIES: &str = "Codes and policies (their names: tidewire help profiles)";

/// Options of coding and rate. The connecting side decides how both sides code, unless the listening side was
/// given a choice of its own. Each side decides its own rate.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rate and delay")]
pub struct Coding {
    /// Never send faster than this rate in bits per second [example: 20mbit]
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<Rate>,
    /// Target for the delay beyond the path's one-way time [example: 80ms]. The default is a part of the
    /// round trip
    #[arg(long, value_name = "TIME", value_parser = parse_latency)]
    pub latency: Option<Duration>,
    /// Fraction of the data that must keep --latency, 50% to 99.9999% [default: 99%]
    #[arg(long, value_name = "PERCENT", requires = "latency", value_parser = parse_deliver)]
    pub deliver: Option<Probability>,
    /// Limit of proactive repair, as a fraction of the bytes of data [example: 25%]
    #[arg(long, value_name = "PERCENT")]
    pub max_overhead: Option<Probability>,
    /// Number of extra threads of this machine that code blocks, 0 to 64
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = POLICIES,
          value_parser = clap::value_parser!(u16).range(0..=64))]
    pub workers: u16,
    /// Rate control; share is the default
    #[arg(long, value_name = "NAME", help_heading = POLICIES)]
    pub rate_control: Option<RateControl>,
    /// Named bundle of the choices below; stream is the default
    #[arg(long, value_name = "NAME", help_heading = POLICIES)]
    pub profile: Option<Profile>,
    /// Code of the repair symbols, in place of the profile's choice
    #[arg(long, value_name = "NAME", help_heading = POLICIES, value_parser = parse_code)]
    pub code: Option<Code>,
    /// When to send repair symbols, in place of the profile's choice
    #[arg(long, value_name = "POLICY", help_heading = POLICIES)]
    pub redundancy: Option<Redundancy>,
}

impl Coding {
    /// Builds the transport's configuration. The query of `link` can set the latency and limit the rate.
    ///
    /// # Errors
    /// A value in the link's query that is not understood, choices that exclude each other, or no rate
    /// control: streams have no other.
    pub fn config(&self, link: Option<&Link>) -> Result<Config, CodingError> {
        let config = self.over(&Config::default(), link)?;
        if config.rate_control() == RateControl::Open { Err(CodingError::NoControl) } else { Ok(config) }
    }

    /// Replaces the choices of `config` by those made here or in the query of `link`.
    ///
    /// # Errors
    /// A value in the link's query that is not understood, or choices that exclude each other.
    pub fn over(&self, config: &Config, link: Option<&Link>) -> Result<Config, CodingError> {
        let mut changed = config.to_builder().workers(self.workers);
        if let Some(profile) = self.profile {
            changed = changed.profile(profile);
        }
        if let Some(code) = self.code {
            changed = changed.code(code);
        }
        if let Some(redundancy) = self.redundancy {
            changed = changed.redundancy(redundancy);
        }
        // A choice of code or redundancy applies to both directions, and the peer cannot change it.
        let is_chosen = self.profile.is_some() || self.code.is_some() || self.redundancy.is_some();
        changed = changed.asks_peer(is_chosen).follows_peer(!is_chosen);
        if let Some(control) = self.rate_control {
            changed = changed.rate_control(control);
        }
        let query = |key| link.and_then(|link| link.query(key));
        let wrong = |key: &str, error: &dyn Display| LinkError::Value(key.into(), error.to_string());
        let of_link = query("maxbw").map(str::parse::<Rate>).transpose().map_err(|error| wrong("maxbw", &error))?;
        if let Some(rate) = self.max_rate.or(of_link) {
            changed = changed.max_rate(Some(rate.bits_per_second()));
        }
        let of_link = query("latency").map(parse_latency).transpose().map_err(|error| wrong("latency", &error))?;
        changed = changed.latency(self.latency.or(of_link).or(config.latency()));
        if let Some(deliver) = self.deliver {
            changed = changed.deliver(deliver.value());
        }
        if let Some(cap) = self.max_overhead {
            changed = changed.max_overhead(cap.value());
        }
        Ok(changed.build()?)
    }
}

impl Coding {
    /// The options that a far end over ssh needs in order to serve the same flows: each end plans the repair
    /// of what it sends. It learns profile and code from the connection, and the rest is for this end alone.
    /// A listener does not follow a redundancy beyond its own bound (`docs/wire.md` section 5), so that is
    /// stated.
    pub fn far_words(&self) -> String {
        let percent = |share: Probability| format!("{}%", share.value() * 100.0);
        let latency = self.latency.map(|latency| format!("--latency {}ns ", latency.as_nanos()));
        let deliver = self.deliver.map(|deliver| format!("--deliver {} ", percent(deliver)));
        let overhead = self.max_overhead.map(|cap| format!("--max-overhead {} ", percent(cap)));
        let redundancy = self.redundancy.filter(|_| self.profile.is_none() && self.code.is_none());
        let redundancy = redundancy.map(|redundancy| format!("--redundancy {redundancy} "));
        [latency, deliver, overhead, redundancy].into_iter().flatten().collect()
    }
}

/// Why [`Coding::config`] has no configuration.
#[derive(Debug, thiserror::Error)]
pub enum CodingError {
    /// A value in the link's query is not understood.
    #[error("{0}")]
    Link(LinkError),
    /// A value is out of range, or choices exclude each other.
    #[error("{0}")]
    Config(ConfigError),
    /// The rate control is `open`, and the verb carries streams.
    #[error(
        "rate control open would flood the path: it is for the verb tunnel, whose flows control their rate \
                 themselves; take the rate control share"
    )]
    NoControl,
}

impl From<LinkError> for CodingError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<ConfigError> for CodingError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Options of the output.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Write one JSON object a line to stdout (docs/json-schema.json), with the summary last
    #[arg(long)]
    pub json: bool,
    /// Report only failures
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
}

impl Output {
    /// Creates the output.
    pub fn console(self) -> Console {
        Console::new(self.json, self.quiet)
    }
}
