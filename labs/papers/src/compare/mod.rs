//! Every profile on the same links: goodput of a file, delay of records, what both cost, and TCP in a tunnel.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`], which belongs to no paper. `papers/compare/README.md` says
//! which profile to use when. Invariants: the arguments of a case determine its result; a profile that is
//! added to the list of profiles is compared without a change here.

mod links;
mod runs;
mod table;

use tidewire_proto::profile::{Named, Profile};

use self::links::{LINKS, Link};
use crate::row::{How, Row};
use crate::{Case, Experiment, Paper, cases};

pub use table::table;

/// The comparison as an entry of the list.
pub const PAPER: Paper = Paper {
    name: "compare",
    title: "Every profile on the same links, and which one to use when",
    experiments: &[Experiment { name: "profiles", title: "All profiles on all links", cases: profiles }],
    #[cfg(target_os = "linux")]
    lab: &[],
};

/// The measures, each a part of a curve's name behind the profile.
const GOODPUT: &str = "goodput";
const RECORDS: &str = "records";
const COST: &str = "cost";
const RECORDS_COST: &str = "records cost";
const TUNNEL: &str = "tunnel";
/// The name of the curve of TCP without a tunnel.
const WITHOUT: &str = "without";

/// Every profile on every link, and TCP without a tunnel. `parameter` is the number of the link, from 1.
///
/// - `PROFILE goodput`: Mbit/s of a file; `rate` is its share of what the link delivers.
/// - `PROFILE cost`: IP bytes sent for each byte of the file.
/// - `PROFILE records`: delays of records at half of the link's rate: mean of those that arrived (`value`),
///   and quantiles of all; `rate` is the share that arrived.
/// - `PROFILE records cost`: IP bytes sent for each byte of the records.
/// - `PROFILE tunnel`, `without tunnel`: Mbit/s of CUBIC; `rate` as of a file.
fn profiles(full: bool) -> Vec<Case> {
    let seeds = if full { 10 } else { 3 };
    let named = Profile::NAMED.iter().map(Some).chain([None]);
    let all = LINKS.iter().enumerate().flat_map(move |(n, link)| named.clone().map(move |named| (n, link, named)));
    cases(all.map(move |point| (point, seeds)), |&((n, link, named), seeds)| {
        let rows = match named {
            Some(named) => of_profile(named, link, seeds),
            None => vec![tunnel_row(WITHOUT, None, link, seeds)],
        };
        rows.into_iter().map(|row| Row { parameter: (n + 1) as f64, ..row }).collect()
    })
}

fn of_profile(named: &Named, link: &Link, seeds: u64) -> Vec<Row> {
    // The name alone means the usual parameters.
    let profile: Profile = named.name.parse().expect("each profile has a name that is one");
    let row = |measure: &str, value| row(named.name, measure, link, value);
    let bulk: Vec<_> = (1..=seeds).map(|seed| runs::bulk(profile, link, seed)).collect();
    let records: Vec<_> = (1..=seeds).map(|seed| runs::records(profile, link, seed)).collect();
    let goodput = mean(bulk.iter().map(|bulk| bulk.goodput_bps));
    // A quantile that one run lacks is not reported.
    let quantile = |q| {
        let of_runs: Option<Vec<f64>> = records.iter().map(|records| records.quantile(q)).collect();
        of_runs.map(|of_runs| mean(of_runs.into_iter()))
    };
    vec![
        Row { rate: Some(goodput / link.delivers()), ..row(GOODPUT, goodput / 1e6) },
        row(COST, mean(bulk.iter().map(|bulk| bulk.sent))),
        Row {
            rate: Some(mean(records.iter().map(runs::Records::arrived))),
            p50: quantile(0.5),
            p99: quantile(0.99),
            ..row(RECORDS, mean(records.iter().map(runs::Records::mean)))
        },
        row(RECORDS_COST, mean(records.iter().map(|records| records.sent))),
        tunnel_row(named.name, Some(profile), link, seeds),
    ]
}

fn tunnel_row(name: &str, profile: Option<Profile>, link: &Link, seeds: u64) -> Row {
    let goodputs: Vec<f64> = (1..=seeds).map(|seed| runs::tunnel(profile, link, seed)).collect();
    let goodput = mean(goodputs.into_iter());
    Row { rate: Some(goodput / link.delivers()), ..row(name, TUNNEL, link, goodput / 1e6) }
}

fn row(name: &str, measure: &str, link: &Link, value: f64) -> Row {
    Row { burst: link.burst, ..Row::new(format!("{name} {measure}"), How::Code, link.loss, 0.0, value) }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
