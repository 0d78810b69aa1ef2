//! What the tests of several crates share: whether they run few seeds or all of them.
//!
//! Tests that draw cases from seeds ask [`few_seeds`]. Few is the default, so that `cargo test` takes
//! minutes; `TIDEWIRE_SEEDS=all` runs all, as the nightly check does. No other place reads that variable.

/// Whether tests run a part of their seeds, cases or repetitions.
///
/// # Panics
///
/// If `TIDEWIRE_SEEDS` is neither `few` nor `all`.
#[must_use]
pub fn few_seeds() -> bool {
    match std::env::var_os("TIDEWIRE_SEEDS") {
        None => true,
        Some(seeds) if seeds == "few" => true,
        Some(seeds) if seeds == "all" => false,
        Some(seeds) => panic!("TIDEWIRE_SEEDS is {seeds:?}: write \"few\" (the default) or \"all\""),
    }
}

/// Fails a test that cannot run on this machine. Such a test is `#[ignore = "needs ..."]`, so it runs only
/// where somebody asked for it, and a machine that lacks what it needs does not look like one that passed.
///
/// # Panics
///
/// Unless `is_there`.
pub fn needs(what: &str, is_there: bool) {
    assert!(is_there, "this machine lacks what the test needs: {what}");
}
