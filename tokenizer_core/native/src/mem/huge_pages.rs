//! Large pages for large results and tables that are about to be written.
//!
//! A page fault for every 4 kB of output costs a tenth or more of the time of encoding or decoding
//! it. On systems without this advice nothing changes.

/// Smaller results are left alone.
const MIN_BYTES: usize = 8 << 20;
pub const PAGE: usize = 2 << 20;

/// Asks for large pages in this memory. Memory that has been written to gains nothing.
///
/// The advice covers the small pages at both ends too: the system treats a mapping with advice in
/// one part as two, does not move it as one, and copies such a vector when it grows.
pub fn advise<T>(start: *const T, n_items: usize) {
    let n_bytes = n_items * size_of::<T>();
    if n_bytes >= MIN_BYTES {
        let small = small_page();
        let first = start as usize / small * small;
        let end = (start as usize + n_bytes).next_multiple_of(small);
        advise_pages(first, end - first);
    }
}

/// The alignment for a table of this size.
pub fn page_for(n_bytes: usize) -> usize {
    if n_bytes >= PAGE { PAGE } else { 1 }
}

/// As `advise`, for a table that is read all over, from one large page on. It is aligned to
/// `page_for`.
pub fn advise_table(start: *const u8, n_bytes: usize) {
    if n_bytes >= PAGE {
        advise_pages(start as usize, n_bytes);
    }
}

/// Moves memory that has content to large pages, also that of a memfd; the processes that map it share
/// them.
#[cfg(target_os = "linux")]
pub fn collapse(start: *mut u8, n_bytes: usize) {
    /// Since Linux 6.1; `libc` does not have it for all C libraries.
    const MADV_COLLAPSE: libc::c_int = 25;
    // SAFETY: changes no content; a system without it returns an error, which is ignored.
    unsafe { libc::madvise(start.cast(), n_bytes, MADV_COLLAPSE) };
}

#[cfg(target_os = "linux")]
fn advise_pages(first: usize, n_bytes: usize) {
    // SAFETY: this advice changes no content; for an address that is not mapped it returns an
    // error, which is ignored.
    unsafe { libc::madvise(first as *mut libc::c_void, n_bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(target_os = "linux")]
fn small_page() -> usize {
    // SAFETY: asks for a number.
    let n_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n_bytes).unwrap_or(PAGE)
}

#[cfg(not(target_os = "linux"))]
fn small_page() -> usize {
    PAGE
}

#[cfg(not(target_os = "linux"))]
fn advise_pages(_first: usize, _n_bytes: usize) {}
