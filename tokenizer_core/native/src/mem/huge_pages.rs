//! Large memory that is about to be written, results and tables: asked for in large pages.
//!
//! A page fault for every 4 kB of output costs a tenth and more of what encoding or decoding it
//! does. Where the system does not do this, nothing changes.

/// A result of less than a few large pages is left alone.
const MIN_BYTES: usize = 8 << 20;
const PAGE: usize = 2 << 20;

/// Asks for large pages in this memory; nothing is gained for what has been written to.
///
/// In all of it, with the small pages that it begins and ends in: what has advice in one part only the
/// system takes for two, which it does not move as one, and growing such a vector copies it.
pub fn advise<T>(start: *const T, n_items: usize) {
    let n_bytes = n_items * size_of::<T>();
    if n_bytes >= MIN_BYTES {
        let small = small_page();
        let first = start as usize / small * small;
        let end = (start as usize + n_bytes).next_multiple_of(small);
        advise_pages(first, end - first);
    }
}

/// What a table of so many bytes is to begin at a multiple of.
pub fn page_for(n_bytes: usize) -> usize {
    if n_bytes >= PAGE { PAGE } else { 1 }
}

/// As `advise`, of a table that is touched all over, from one large page on; it begins at a multiple
/// of what `page_for` says.
pub fn advise_table(start: *const u8, n_bytes: usize) {
    if n_bytes >= PAGE {
        advise_pages(start as usize, n_bytes);
    }
}

#[cfg(target_os = "linux")]
fn advise_pages(first: usize, n_bytes: usize) {
    // SAFETY: this advice changes no content, and an address that is not mapped is an error, which
    // is of no account here.
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
