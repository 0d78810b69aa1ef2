//! The figures of a delay distribution that programs read: in `--json` of the commands, and on the
//! dashboard.

use serde::{Deserialize, Serialize};

use crate::Distribution;

/// A delay distribution in milliseconds. All fields are null at a sender and if nothing was delivered.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it: mean, quantiles, maximum")]
pub struct Delay {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: Option<f64>,
}

impl From<&Distribution> for Delay {
    fn from(delay: &Distribution) -> Self {
        let quantile = |q| delay.quantile(q);
        Self {
            mean: delay.mean(),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: delay.max(),
        }
    }
}
