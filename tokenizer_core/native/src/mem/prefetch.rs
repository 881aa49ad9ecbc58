//! Prefetching.

/// Prefetches the cache line at an address, which may be invalid.
#[inline(always)]
pub fn prefetch<T>(position: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing that a program can see and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(position.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction reads nothing that a program can see and faults at no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) position,
            options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = position;
}
