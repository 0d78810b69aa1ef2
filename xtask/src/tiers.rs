//! Runs the codec's tests on the kernels that `cargo test` does not use: every slower kernel of this
//! processor, and kernels of other processors.
//!
//! Other tests compare each kernel with the scalar one. Here whole encoders and decoders run on each kernel.
//! `TIDEWIRE_KERNEL` chooses the kernel, and the tests fail if that kernel is not active. QEMU's user mode
//! emulates other processors, some ten times slower. All runs have few seeds, because
//! other steps test what does not depend on the processor.

use crate::context::{Context, run};
use crate::tools;

/// Runs the codec's tests on every kernel of this processor except the fastest, which the step `tests`
/// uses.
pub fn native(context: &Context) -> Result<(), String> {
    let kernels = kernels();
    println!("kernels of this processor: {}", kernels.join(", "));
    for kernel in kernels.iter().skip(1) {
        run(context.command(TEST).env("TIDEWIRE_KERNEL", kernel))?;
    }
    Ok(())
}

/// Runs the codec's tests on emulated processors.
pub fn foreign(context: &Context) -> Result<(), String> {
    for foreign in FOREIGN {
        tools::target(context, foreign.triple)?;
        tools::packages(context, foreign.tools)?;
        let variable = |name| format!("CARGO_TARGET_{}_{name}", foreign.triple.to_uppercase().replace('-', "_"));
        let mut command = context.command(TEST);
        command.args(["--target", foreign.triple]).env("TIDEWIRE_KERNEL", foreign.kernel);
        run(command.env(variable("LINKER"), foreign.linker).env(variable("RUNNER"), foreign.runner))?;
    }
    Ok(())
}

/// Names of this processor's kernels, fastest first. The detection is independent of the codec's own, which
/// is under test.
fn kernels() -> Vec<&'static str> {
    let mut kernels = vec!["scalar"];
    #[cfg(target_arch = "x86_64")]
    {
        let (avx2, gfni) = (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("gfni"));
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        let tiers = [
            ("ssse3", is_x86_feature_detected!("ssse3")),
            ("avx2", avx2),
            ("gfni-256", avx2 && gfni),
            ("gfni-512", gfni && avx512),
        ];
        kernels.extend(tiers.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name));
    }
    if cfg!(target_arch = "aarch64") {
        kernels.push("neon");
    }
    kernels.reverse();
    kernels
}

/// An emulated processor.
struct Foreign {
    triple: &'static str,
    /// The kernel that must be active there.
    kernel: &'static str,
    linker: &'static str,
    /// The emulator, with the folder of the C library.
    runner: &'static str,
    /// Probes and Debian packages, as [`tools::packages`] takes them.
    tools: &'static [(&'static str, &'static str)],
}

/// AArch64 runs the NEON kernel; 32-bit ARM tests pointers of 32 bits.
const FOREIGN: &[Foreign] = &[
    Foreign {
        triple: "aarch64-unknown-linux-gnu",
        kernel: "neon",
        linker: "aarch64-linux-gnu-gcc",
        runner: "qemu-aarch64 -L /usr/aarch64-linux-gnu",
        tools: &[
            ("qemu-aarch64 --version", "qemu-user"),
            ("aarch64-linux-gnu-gcc --version", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        ],
    },
    Foreign {
        triple: "armv7-unknown-linux-gnueabihf",
        kernel: "scalar",
        linker: "arm-linux-gnueabihf-gcc",
        runner: "qemu-arm -L /usr/arm-linux-gnueabihf",
        tools: &[
            ("qemu-arm --version", "qemu-user"),
            ("arm-linux-gnueabihf-gcc --version", "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"),
        ],
    },
];

const TEST: &str = "cargo test --package tidewire-codec --lib --tests --no-fail-fast";
