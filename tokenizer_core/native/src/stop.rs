//! Ending a call from another thread, and why a call ends early.

use std::cell::RefCell;
use std::collections::TryReserveError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::mem::growth::NoMemory;

/// Why a call ended before its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    NoMemory,
    Cancelled,
    /// Splitting would read parts of the text too often.
    TooSlow,
}

impl From<NoMemory> for Stopped {
    fn from(_: NoMemory) -> Stopped {
        Stopped::NoMemory
    }
}

impl From<TryReserveError> for Stopped {
    fn from(_: TryReserveError) -> Stopped {
        Stopped::NoMemory
    }
}

/// Says whether the calls that look at it shall end; once set it stays so.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

thread_local! {
    static CURRENT: RefCell<Option<StopFlag>> = const { RefCell::new(None) };
}

impl StopFlag {
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The flag that calls on this thread look at.
pub fn current() -> Option<StopFlag> {
    CURRENT.with_borrow(Clone::clone)
}

/// Makes calls on this thread look at `flag`; gives the one before.
pub fn replace(flag: Option<StopFlag>) -> Option<StopFlag> {
    CURRENT.replace(flag)
}

/// Fails if the flag is set.
#[inline(always)]
pub fn check(flag: &Option<StopFlag>) -> Result<(), Stopped> {
    match flag {
        Some(flag) if flag.is_set() => Err(Stopped::Cancelled),
        _ => Ok(()),
    }
}
