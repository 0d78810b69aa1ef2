//! Settings are checked when a [`Config`] is built: each bound of a range is accepted, and the next value
//! beyond it is refused by the name of its field.

use std::time::Duration;

use tidewire_proto::config::{Config, ConfigBuilder, ConfigError};
use tidewire_proto::redundancy::Redundancy;

type Set<T> = fn(ConfigBuilder, T) -> ConfigBuilder;

/// Builds a configuration with each of `allowed`, and is refused with each of `refused`.
#[track_caller]
fn range<T: Clone + std::fmt::Debug>(field: &str, set: Set<T>, allowed: &[T], refused: &[T]) {
    for value in allowed {
        let built = set(Config::builder(), value.clone()).build();
        assert!(built.is_ok(), "{field} = {value:?}: {built:?}");
    }
    for value in refused {
        let error = set(Config::builder(), value.clone()).build().expect_err(field);
        assert!(matches!(error, ConfigError::Range { field: named, .. } if named == field), "{value:?}: {error:?}");
        assert!(error.to_string().starts_with(&format!("{field} must be ")), "{error}");
    }
}

#[test]
fn each_range_ends_where_its_error_says() {
    let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
    let below = |time: Duration| time - Duration::from_nanos(1);
    range("max_overhead", ConfigBuilder::max_overhead, &[0.0, 1.0], &[-0.01, 1.01, f64::NAN, f64::INFINITY]);
    range("latency", ConfigBuilder::latency, &[None, Some(ms(1))], &[Some(below(ms(1)))]);
    range("deliver", ConfigBuilder::deliver, &[0.5, 0.999_999], &[0.49, 0.999_999_9, f64::NAN]);
    range("max_span", ConfigBuilder::max_span, &[1, 1_024], &[0, 1_025]);
    range("workers", ConfigBuilder::workers, &[0, 64], &[65]);
    range("max_datagram", ConfigBuilder::max_datagram, &[1_200, 65_527], &[1_199, 65_528]);
    range("max_rate", ConfigBuilder::max_rate, &[None, Some(8_000)], &[Some(7_999), Some(0)]);
    range("idle_timeout", ConfigBuilder::idle_timeout, &[second], &[below(second)]);
    range("keep_alive", ConfigBuilder::keep_alive, &[None, Some(second)], &[Some(below(second))]);
    range("packets_per_key", ConfigBuilder::packets_per_key, &[1, 1 << 27], &[0, (1 << 27) + 1]);
    range("fresh_keys_after", ConfigBuilder::fresh_keys_after, &[second], &[below(second)]);
    range("handshake_timeout", ConfigBuilder::handshake_timeout, &[ms(100)], &[below(ms(100))]);
    range("ring_memory", ConfigBuilder::ring_memory, &[1 << 20], &[(1 << 20) - 1]);
    range("max_connections", ConfigBuilder::max_connections, &[1], &[0]);
    range("max_memory", ConfigBuilder::max_memory, &[1 << 20], &[(1 << 20) - 1]);
    range("max_streams", ConfigBuilder::max_streams, &[0, 4_096], &[4_097]);
    range("stream_window", ConfigBuilder::stream_window, &[2_048], &[2_047]);
}

/// The ring has to hold 256 of the longest datagrams, whatever their length.
#[test]
fn the_ring_grows_with_the_longest_datagram() {
    let with = |bytes| Config::builder().max_datagram(65_527).ring_memory(bytes).build();
    assert!(with(256 * 65_536).is_ok());
    assert!(matches!(with(256 * 65_536 - 1), Err(ConfigError::Range { field: "ring_memory", .. })));
}

#[test]
fn choices_that_do_not_fit_are_refused_by_name() {
    let sliding_profile_with_blocks: Redundancy = "block:32,8".parse().unwrap();
    let error = Config::builder().redundancy(sliding_profile_with_blocks).build().unwrap_err();
    assert!(matches!(error, ConfigError::Profile(_)), "{error:?}");
    assert!(error.to_string().contains("take the profile block:K,R"), "{error}");
}

/// A copy is changed, not the original, and what was not set stays as it was.
#[test]
fn a_changed_copy_keeps_the_other_settings() {
    let first = Config::builder().max_span(77).workers(3).build().unwrap();
    let second = first.to_builder().workers(4).build().unwrap();
    assert_eq!((first.workers(), second.workers(), second.max_span()), (3, 4, 77));
}
