//! Vectors for ids: large enough for all ids that a text can have, and where possible of memory
//! that was used before.
//!
//! The system zeroes fresh memory page by page as it is written to, which takes a twentieth of the
//! time of encoding by one thread and a fifth by two. So the memory of results that are no longer
//! needed serves the next ones. A large result is a separate mapping, and growing it asks the
//! system for more memory after it.

use std::sync::{Mutex, PoisonError};

use crate::mem::huge_pages;

/// Texts of at least this many bytes get a vector that need not grow.
pub const LARGE_BYTES: usize = 1 << 17;
/// The pool keeps no smaller vectors. A text of `LARGE_BYTES` can use each vector of this size, as
/// every id stands for at least one byte.
pub const MIN_KEPT: usize = LARGE_BYTES / 8;
/// Ids that the pool has room for at most: 64 MB.
const MAX_KEPT: usize = 16 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool(Vec::new()));

/// A vector with room for `n_ids` and `slack` more; memory that is not written to is not used. None
/// without address space for it.
pub fn take(n_ids: usize, slack: usize) -> Option<Vec<u32>> {
    let n_wanted = n_ids + slack;
    let taken = (n_ids >= MIN_KEPT).then(|| with_pool(|pool| pool.take(n_wanted)));
    let mut ids = taken.flatten().flatten().unwrap_or_default();
    if ids.try_reserve_exact(n_wanted).is_err() {
        // Drop the pool and retry: it may hold the memory we need.
        ids = Vec::new();
        with_pool(|pool| pool.0.clear());
        ids.try_reserve_exact(n_wanted).ok()?;
    }
    huge_pages::advise(ids.as_ptr(), ids.capacity());
    Some(ids)
}

/// A vector for the usual number of ids of a short text; it may move as it grows.
pub fn take_for_short_text(n_bytes: usize) -> Option<Vec<u32>> {
    let n_usual = n_bytes / 3 + 8;
    let taken = (n_bytes >= MIN_KEPT).then(|| with_pool(|pool| pool.take(n_bytes)));
    let mut ids = taken.flatten().flatten().unwrap_or_default();
    ids.try_reserve(n_usual).is_ok().then_some(ids)
}

/// Gives the memory of ids to the pool.
pub fn give_back(ids: Vec<u32>) {
    if ids.capacity() >= MIN_KEPT {
        with_pool(|pool| pool.keep(ids));
    }
}

/// Drops the pool; returns the bytes that it had reserved.
pub fn release() -> usize {
    let dropped = std::mem::take(&mut POOL.lock().unwrap_or_else(PoisonError::into_inner).0);
    dropped
        .iter()
        .map(|ids| ids.capacity() * size_of::<u32>())
        .sum()
}

/// None while another thread uses the pool: asking the system is faster than waiting.
fn with_pool<T>(work: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    POOL.try_lock().ok().map(|mut pool| work(&mut pool))
}

/// The oldest first.
struct Pool(Vec<Vec<u32>>);

impl Pool {
    /// The largest vector of at most `most` ids: a larger one would be given back in part.
    fn take(&mut self, most: usize) -> Option<Vec<u32>> {
        let positions = 0..self.0.len();
        let fits = positions.filter(|&position| self.0[position].capacity() <= most);
        let position = fits.max_by_key(|&position| self.0[position].capacity())?;
        Some(self.0.remove(position))
    }

    fn keep(&mut self, mut ids: Vec<u32>) {
        if ids.capacity() > MAX_KEPT {
            return;
        }
        ids.clear();
        let mut n_kept = ids.capacity();
        self.0.push(ids);
        let newest = self.0.iter().rev();
        let fits = |ids: &&Vec<u32>| {
            n_kept += ids.capacity();
            n_kept <= MAX_KEPT
        };
        let n = 1 + newest.skip(1).take_while(fits).count();
        self.0.drain(..self.0.len() - n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: usize = 5000;

    #[test]
    fn the_largest_that_is_not_too_large_is_taken_once() {
        let mut pool = Pool(Vec::new());
        for n in [100, 400, 200, 300] {
            pool.keep(vec![7; n]);
        }
        let mut take = |most| {
            let taken = pool.take(most);
            taken.map(|ids| (ids.len(), ids.capacity()))
        };
        assert_eq!(take(350), Some((0, 300)));
        assert_eq!(take(350), Some((0, 200)));
        assert_eq!(take(99), None);
        assert_eq!(take(1000), Some((0, 400)));
        assert_eq!(take(1000), Some((0, 100)));
        assert_eq!(take(1000), None);
    }

    #[test]
    fn the_oldest_go_where_there_are_more_than_are_kept() {
        let mut pool = Pool(Vec::new());
        let room = |n| Vec::with_capacity(n);
        pool.keep(room(MAX_KEPT / 2));
        pool.keep(room(MAX_KEPT / 4));
        pool.keep(room(MAX_KEPT / 4));
        assert_eq!(pool.0.len(), 3);
        pool.keep(room(1));
        assert_eq!(pool.0.len(), 3);
        pool.keep(room(MAX_KEPT + 1));
        assert_eq!(pool.0.len(), 3);
        pool.keep(room(MAX_KEPT));
        assert_eq!(pool.0.len(), 1);
    }

    #[test]
    fn there_is_room_for_all_or_for_the_usual() {
        for n in [
            0,
            100,
            MIN_KEPT,
            LARGE_BYTES - 1,
            LARGE_BYTES,
            5 * LARGE_BYTES,
        ] {
            for _ in 0..3 {
                let all = take(n, SLACK).unwrap();
                assert!(all.is_empty() && all.capacity() >= n + SLACK);
                let usual = take_for_short_text(n).unwrap();
                assert!(usual.is_empty() && usual.capacity() >= n / 3);
                give_back(all);
                give_back(usual);
            }
        }
    }
}
