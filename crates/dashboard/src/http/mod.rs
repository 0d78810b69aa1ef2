//! What both servers of this crate need: a bounded listener, and the check of the host.
//!
//! [`metrics`](crate::Metrics) and the [pages](crate::Dashboard) serve through it. Invariant: neither a flood
//! of connections nor clients that stall hold more than a fixed number of descriptors and buffers.

mod bounded;

use std::net::IpAddr;

pub use bounded::{Bounded, one_request};

/// Whether a Host header names this machine by an address or as `localhost`. A page of another site can make
/// the browser ask us under the name of that site (DNS rebinding), so other names are refused.
pub fn is_own_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_names_of_this_machine() {
        for own in [
            "localhost",
            "LOCALHOST",
            "localhost:9",
            "LOCALHOST:9464",
            "127.0.0.1",
            "127.0.0.1:9464",
            "192.0.2.7",
            "[::1]:9464",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(is_own_host(own), "{own}");
        }
        for other in [
            "",
            "example.com",
            "example.com:9464",
            "127.0.0.1.example.com",
            "localhost.example.com:1",
            ":1",
            "[::1",
            "a:b:c",
            "rebound.example:8080",
        ] {
            assert!(!is_own_host(other), "{other}");
        }
    }
}
