//! Settings of the codec's tests from the environment. `TIDEWIRE_KERNEL=ssse3` runs them on that kernel
//! instead of the fastest, and `TIDEWIRE_SEEDS=all` with ten times the cases.
//!
//! The library itself reads no environment. A test file says `mod setup;`, takes its `proptest` settings from
//! [`cases`], and calls [`activate_kernel`] first in other tests. A name that is unknown, or that this
//! processor cannot run, fails every test; there is no fallback.
#![allow(dead_code, reason = "not every test file needs all of it")]

use proptest::test_runner::Config;
use tidewire_codec::kernel::Kernel;

/// Makes the kernel of `TIDEWIRE_KERNEL` the active one, for the whole process.
pub fn activate_kernel() {
    let Some(name) = asked_for() else { return };
    let Some(kernel) = Kernel::named(&name) else {
        let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
        panic!("TIDEWIRE_KERNEL={name}: this processor runs {}", names.join(", "));
    };
    kernel.activate();
}

/// Settings for a property: the number of cases, on the requested kernel.
pub fn cases(cases: u32) -> Config {
    activate_kernel();
    let few = tidewire_testing::few_seeds();
    Config::with_cases(if few { cases.div_ceil(10) } else { cases })
}

fn asked_for() -> Option<String> {
    std::env::var("TIDEWIRE_KERNEL").ok()
}

#[test]
fn the_kernel_asked_for_is_active() {
    activate_kernel();
    let fastest = Kernel::available().next().map(Kernel::name);
    assert_eq!(Some(Kernel::active().name()), asked_for().as_deref().or(fastest));
}
