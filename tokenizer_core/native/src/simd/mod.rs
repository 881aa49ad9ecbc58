//! Instruction sets, and running work with the best that the processor has.
//!
//! A token (`Avx512`, `Avx2`, `Neon`, `Portable`) is a value that exists only where the processor has its
//! instructions. Each room that uses vectors defines a trait and implements it for each token; this
//! file knows none of those traits. `Work` written against such a trait is compiled once for each
//! token and has the same result with each (hashes differ, and never leave the process).
//!
//! `Work::run` must be `#[inline(always)]`, and so must all functions it passes the token to: code
//! that is not inlined is compiled without the instructions. For the same reason no closure holds a
//! vector instruction.

use std::sync::LazyLock;

/// Work for instructions `I`.
pub trait Work<I> {
    type Output;

    fn run(self, instructions: I) -> Self::Output;
}

/// A token.
pub trait Instructions: Copy {
    /// Runs the work compiled for these instructions. With vectors it is a separate function, which
    /// shares no registers with its caller.
    fn run<W: Work<Self>>(self, work: W) -> W::Output;
}

/// Plain arithmetic, on any processor.
#[derive(Clone, Copy)]
pub struct Portable;

impl Instructions for Portable {
    // Inlining would compile it again for each caller.
    #[inline(never)]
    fn run<W: Work<Self>>(self, work: W) -> W::Output {
        work.run(self)
    }
}

/// AVX2 and AES: nearly every x86-64 processor in use.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// None where the processor lacks one of the instructions.
    pub fn detect() -> Option<Avx2> {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Avx2(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Instructions for Avx2 {
    fn run<W: Work<Self>>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt")]
        fn with_instructions<W: Work<Avx2>>(token: Avx2, work: W) -> W::Output {
            work.run(token)
        }
        // SAFETY: a value of this type exists only where the processor has the instructions.
        unsafe { with_instructions(self, work) }
    }
}

/// The tokens of processors with AVX2 and AES.
#[cfg(target_arch = "x86_64")]
pub trait HasAvx2: Instructions {}

#[cfg(target_arch = "x86_64")]
impl HasAvx2 for Avx2 {}

#[cfg(target_arch = "x86_64")]
impl HasAvx2 for Avx512 {}

/// AVX-512 with VBMI2: processors from about 2019 (Intel) and 2022 (AMD) on.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// None where the processor lacks one of the instructions.
    pub fn detect() -> Option<Avx512> {
        Avx2::detect()?;
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        has_all.then_some(Avx512(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Instructions for Avx512 {
    fn run<W: Work<Self>>(self, work: W) -> W::Output {
        #[target_feature(
            enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2",
            enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt"
        )]
        fn with_instructions<W: Work<Avx512>>(token: Avx512, work: W) -> W::Output {
            work.run(token)
        }
        // SAFETY: a value of this type exists only where the processor has the instructions.
        unsafe { with_instructions(self, work) }
    }
}

/// NEON: every processor of aarch64 that runs a system.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy)]
pub struct Neon(());

#[cfg(target_arch = "aarch64")]
impl Neon {
    /// None where the processor lacks the instructions.
    pub fn detect() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }
}

#[cfg(target_arch = "aarch64")]
impl Instructions for Neon {
    /// No separate function: the compiler uses these instructions in all code for aarch64.
    #[inline(always)]
    fn run<W: Work<Self>>(self, work: W) -> W::Output {
        work.run(self)
    }
}

/// One of the tokens that this processor has.
#[derive(Clone, Copy)]
pub enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    Portable(Portable),
}

impl Kernel {
    /// All that this processor has, the fastest first.
    pub fn all() -> Vec<Kernel> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx512::detect().map(Kernel::Avx512));
            all.extend(Avx2::detect().map(Kernel::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(Neon::detect().map(Kernel::Neon));
        all.push(Kernel::Portable(Portable));
        all
    }

    /// The one that this process uses: the fastest, or the one that TOKENIZER_KERNEL names, which
    /// lets tests run the others.
    pub fn chosen() -> Kernel {
        static CHOSEN: LazyLock<Kernel> = LazyLock::new(|| {
            let all = Kernel::all();
            let asked = std::env::var("TOKENIZER_KERNEL").unwrap_or_default();
            let named = all.iter().find(|kernel| kernel.name() == asked);
            *named.unwrap_or(&all[0])
        });
        *CHOSEN
    }

    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(_) => "neon",
            Kernel::Portable(_) => "portable",
        }
    }

    #[inline]
    pub fn run<W: OnAny>(self, work: W) -> <W as Work<Portable>>::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(token) => token.run(work),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(token) => token.run(work),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon(token) => token.run(work),
            Kernel::Portable(token) => token.run(work),
        }
    }
}

/// Work that has the same output with each token: every `Work` written against a room's trait.
#[cfg(target_arch = "x86_64")]
pub trait OnAny:
    Work<Portable>
    + Work<Avx2, Output = <Self as Work<Portable>>::Output>
    + Work<Avx512, Output = <Self as Work<Portable>>::Output>
{
}

#[cfg(target_arch = "x86_64")]
impl<W> OnAny for W where
    W: Work<Portable>
        + Work<Avx2, Output = <W as Work<Portable>>::Output>
        + Work<Avx512, Output = <W as Work<Portable>>::Output>
{
}

/// Work that has the same output with each token.
#[cfg(target_arch = "aarch64")]
pub trait OnAny: Work<Portable> + Work<Neon, Output = <Self as Work<Portable>>::Output> {}

#[cfg(target_arch = "aarch64")]
impl<W> OnAny for W where W: Work<Portable> + Work<Neon, Output = <W as Work<Portable>>::Output> {}

/// Work that has the same output with each token.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub trait OnAny: Work<Portable> {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl<W: Work<Portable>> OnAny for W {}
