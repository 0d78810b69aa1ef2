//! Detects which instructions this x86-64 processor and its operating system allow. This file does so itself
//! because `core` has no detection.
//!
//! [`Kernel::active`](super::Kernel::active) and its siblings call it; nothing on the data path does. The bit
//! numbers are from the Intel manual: volume 2, CPUID, and volume 1, chapter 13 (XCR0).

/// The vector extensions that the kernels use.
#[derive(Clone, Copy)]
pub(super) struct Cpu {
    pub ssse3: bool,
    pub avx2: bool,
    /// AVX-512 F, and DQ, which multiplies 64-bit numbers for the hashes. Every processor with GFNI has both
    /// or neither.
    pub avx512: bool,
    pub gfni: bool,
}

/// The extensions that the build already assumes. Under Miri, which has no CPUID, no others count.
const COMPILED_FOR: Cpu = Cpu {
    ssse3: cfg!(target_feature = "ssse3"),
    avx2: cfg!(target_feature = "avx2"),
    avx512: cfg!(all(target_feature = "avx512f", target_feature = "avx512dq")),
    gfni: cfg!(target_feature = "gfni"),
};

#[cfg(miri)]
pub(super) fn cpu() -> Cpu {
    COMPILED_FOR
}

#[cfg(not(miri))]
pub(super) fn cpu() -> Cpu {
    // XCR0 lists the registers that the operating system saves when it switches tasks.
    const XMM_YMM: u64 = 0b110;
    const MASK_ZMM: u64 = 0b1110_0000;

    let basic = cpuid(1);
    let ssse3 = COMPILED_FOR.ssse3 || bit(basic.ecx, 9);
    if cpuid(0).eax < 7 {
        return Cpu { ssse3, ..COMPILED_FOR };
    }
    let extended = cpuid(7);
    let has_xgetbv = bit(basic.ecx, 27);
    // SAFETY: OSXSAVE says that the operating system enabled XGETBV.
    let saved = if has_xgetbv { unsafe { xcr0() } } else { 0 };
    let wide = bit(basic.ecx, 28) && saved & XMM_YMM == XMM_YMM;
    let widest = wide && saved & MASK_ZMM == MASK_ZMM;
    Cpu {
        ssse3,
        avx2: COMPILED_FOR.avx2 || wide && bit(extended.ebx, 5),
        avx512: COMPILED_FOR.avx512 || widest && bit(extended.ebx, 16) && bit(extended.ebx, 17),
        gfni: COMPILED_FOR.gfni || bit(extended.ecx, 8),
    }
}

#[cfg(not(miri))]
const fn bit(register: u32, index: u32) -> bool {
    register >> index & 1 == 1
}

/// Reads leaf `leaf`, subleaf 0.
#[cfg(not(miri))]
#[allow(unused_unsafe, reason = "the intrinsic became safe after our oldest supported compiler")]
fn cpuid(leaf: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: every x86-64 processor has CPUID.
    unsafe { core::arch::x86_64::__cpuid_count(leaf, 0) }
}

#[cfg(not(miri))]
#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: the caller has checked that the instruction exists; register 0 always exists.
    unsafe { core::arch::x86_64::_xgetbv(0) }
}
