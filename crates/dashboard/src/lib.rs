//! Shows and keeps what the connections of a program do.
//!
//! A [`FanOut`] is the trace of a program's endpoints. It hands their events to consumers, each on a thread
//! of its own: a [`Dashboard`], which is a page in a browser (docs/dashboard.md), [`Metrics`] for Prometheus
//! (docs/metrics.md), a [`Qlog`] (docs/qlog.md), a [`Recorder`] (docs/recording.md), or a [`Consumer`] of the
//! program. [`show`] serves a page of recordings, and [`what_if`] runs a recorded flow again with other
//! choices. The command uses all of it for `--dashboard`, `--metrics`, `--qlog`, `--record`, `dash` and
//! `replay`. Invariant: no consumer, however slow, delays a connection. What it cannot take is dropped and
//! counted.
//!
//! The example `page` serves the page of a connection:
//!
//! ```no_run
//! use std::sync::Arc;
//! use tidewire::Config;
//! use tidewire_dashboard::{Dashboard, FanOut};
//!
//! let page = Dashboard::open(([127, 0, 0, 1], 0).into(), "my program", || None)?;
//! println!("dashboard: {}", page.url());
//! let tell = |name: &str, why: &tidewire_dashboard::ConsumerError| eprintln!("{name} ends: {why}");
//! let (trace, _watching) = FanOut::start(vec![Box::new(page)], tell)?;
//! let config = Config::default().with_trace(Arc::new(trace));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod consumer;
mod fan_out;
mod http;
mod metrics;
mod pages;
mod qlog;
mod record;
pub mod what_if;
mod words;

pub use consumer::{Batch, Consumer, ConsumerError, Observed};
pub use fan_out::{FanOut, Watching};
pub use metrics::Metrics;
pub use pages::{Dashboard, PageError, Recording, RecordingError, Shown, show};
pub use qlog::Qlog;
pub use record::Recorder;
pub use words::words;
