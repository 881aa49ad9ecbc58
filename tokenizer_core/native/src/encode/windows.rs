//! Texts encoded a window at a time, each written as UTF-8 by the thread that encodes it: the UTF-8 of a
//! long text never exists as a whole.
//!
//! Windows end at safe cuts (`Scanner::is_safe_cut`), and not between two characters that are adjacent in
//! a special token. That depends on two characters only, so any position can be tested.

use std::ops::Range;

use crate::encode::session::Session;
use crate::encode::sink::Sink;
use crate::encode::specials::SpecialTokens;
use crate::encode::tasks::Encoded;
use crate::mem::growth::{Grow, NoMemory};
use crate::normalize::spaces::Place;
use crate::split::Scanner;
use crate::stop::{self, Stopped};

/// Positions of a window; it extends to the next safe cut. Its memory is small, and its fixed cost
/// does not count. Threads get smaller windows.
pub const WINDOW: usize = 1 << 17;
const MIN_WINDOW: usize = 1 << 14;
/// Windows for each thread.
const WINDOWS_PER_THREAD: usize = 8;

/// A text that is UTF-8 already, or is written as UTF-8 part by part. Positions count its
/// characters (bytes, in UTF-8).
pub trait Source: Sync {
    type Error: Send + PartialEq + From<Stopped>;

    fn n_characters(&self) -> usize;

    /// The most bytes that its UTF-8 can have.
    fn max_bytes(&self) -> usize;

    /// The characters before and after a position between two; None where it cannot be cut.
    fn around(&self, position: usize) -> Option<(u32, u32)>;

    /// All of it, if it is UTF-8 already.
    fn as_utf8(&self) -> Option<&str>;

    /// Appends the UTF-8 of the part between two positions.
    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), Self::Error>;
}

/// Places are bytes.
impl<T: AsRef<str> + Sync + ?Sized> Source for T {
    type Error = Stopped;

    fn n_characters(&self) -> usize {
        self.as_ref().len()
    }

    fn max_bytes(&self) -> usize {
        self.as_ref().len()
    }

    fn around(&self, position: usize) -> Option<(u32, u32)> {
        let (before, after) = self.as_ref().split_at_checked(position)?;
        let pair = before.chars().next_back().zip(after.chars().next());
        pair.map(|(before, after)| (before.into(), after.into()))
    }

    fn as_utf8(&self) -> Option<&str> {
        Some(self.as_ref())
    }

    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), Stopped> {
        let part = &self.as_ref()[window];
        own.try_reserve(part.len())?;
        own.push_str(part);
        Ok(())
    }
}

/// The window size for texts of this many positions in total.
pub fn window_for(n_positions: usize, n_threads: usize) -> usize {
    match n_threads {
        0 | 1 => WINDOW,
        n => (n_positions / (n * WINDOWS_PER_THREAD)).clamp(MIN_WINDOW, WINDOW),
    }
}

/// Appends the ids of a text, special tokens recognised, until `sink` is full; `own` is memory for its
/// windows. A text that is UTF-8 already is one window.
pub fn encode_source<S: Source + ?Sized>(
    session: &mut Session,
    scanner: Scanner,
    specials: &SpecialTokens,
    text: &S,
    window: usize,
    own: &mut String,
    sink: &mut Sink,
) -> Result<(), S::Error> {
    let size = text.as_utf8().map_or(window, str::len);
    let mut next = Some(0);
    while let Some(start) = next
        && sink.wants_more()
    {
        next = next_cut(text, scanner, specials, start, size);
        let window = start..next.unwrap_or(text.n_characters());
        encode_window(session, scanner, specials, text, window, own, sink)?;
    }
    Ok(())
}

/// Appends the ids of a window of a text, which is written as UTF-8 to `own` unless it is that already.
/// No special token crosses the ends of a window, so a trusted run may be cut there.
fn encode_window<S: Source + ?Sized>(
    session: &mut Session,
    scanner: Scanner,
    specials: &SpecialTokens,
    text: &S,
    window: Range<usize>,
    own: &mut String,
    sink: &mut Sink,
) -> Result<(), S::Error> {
    let (place, mut runs) = (Place::of_window(window.start), Vec::new());
    let mut add_run = |run| runs.try_push(run).map_err(Stopped::from);
    let utf8 = if let Some(utf8) = text.as_utf8() {
        for run in specials.runs_in(window.clone()) {
            add_run(run.start - window.start..run.end - window.start)?;
        }
        &utf8[window]
    } else {
        own.clear();
        if specials.has_runs() {
            // The parts between the ends of runs are short; one after the other, they would move `own` as
            // it grows, a twentieth of the time of a Chinese chat.
            let n_bytes = text.max_bytes().div_ceil(text.n_characters().max(1));
            own.try_reserve(n_bytes * window.len())
                .map_err(Stopped::from)?;
        }
        let mut at = window.start;
        for run in specials.runs_in(window.clone()) {
            text.append_to(own, at..run.start)?;
            let start = own.len();
            text.append_to(own, run.clone())?;
            add_run(start..own.len())?;
            at = run.end;
        }
        text.append_to(own, at..window.end)?;
        own
    };
    let search = specials.search(utf8, &runs);
    Ok(session.encode_document(scanner, search, (specials.spaces(), place), sink)?)
}

/// A window of one of several texts, which a thread encodes together with others.
pub struct Part<'t, S> {
    text: &'t S,
    /// The number of the text.
    number: usize,
    window: Range<usize>,
    is_last: bool,
}

impl<S: Source> Part<'_, S> {
    /// Appends its ids.
    pub fn encode(
        &self,
        session: &mut Session,
        scanner: Scanner,
        specials: &SpecialTokens,
        own: &mut String,
        made: &mut Encoded,
    ) -> Result<(), (usize, S::Error)> {
        let (text, window) = (self.text, self.window.clone());
        let encode = || -> Result<(), S::Error> {
            let n_bytes = text.as_utf8().map_or(3 * window.len(), |_| window.len());
            let room = made.ids.try_reserve(n_bytes / 3);
            room.map_err(Stopped::from)?;
            let sink = &mut Sink::appending(&mut made.ids);
            encode_window(session, scanner, specials, text, window, own, sink)?;
            if self.is_last {
                let ended = made.ends.try_push(made.ids.len() as u64);
                ended.map_err(Stopped::from)?;
            }
            Ok(())
        };
        encode().map_err(|error| (self.number, error))
    }
}

/// The windows of some texts, grouped up to the size of one.
pub struct Tasks<'t, S> {
    pub texts: &'t [S],
    pub scanner: Scanner<'t>,
    pub specials: &'t SpecialTokens,
    size: usize,
    /// The number of the text of the next window, and where it begins.
    number: usize,
    at: usize,
}

impl<'t, S: Source> Tasks<'t, S> {
    pub fn of(
        texts: &'t [S],
        scanner: Scanner<'t>,
        specials: &'t SpecialTokens,
        size: usize,
    ) -> Tasks<'t, S> {
        Tasks {
            texts,
            scanner,
            specials,
            size,
            number: 0,
            at: 0,
        }
    }

    fn next_part(&mut self) -> Option<Part<'t, S>> {
        let (text, number, start) = (self.texts.get(self.number)?, self.number, self.at);
        let cut = next_cut(text, self.scanner, self.specials, start, self.size);
        match cut {
            Some(cut) => self.at = cut,
            None => (self.number, self.at) = (number + 1, 0),
        }
        Some(Part {
            text,
            number,
            window: start..cut.unwrap_or(text.n_characters()),
            is_last: cut.is_none(),
        })
    }
}

/// Some windows for one thread.
pub type Task<'t, S> = Result<Vec<Part<'t, S>>, NoMemory>;

impl<'t, S: Source> Iterator for Tasks<'t, S> {
    type Item = Task<'t, S>;

    fn next(&mut self) -> Option<Task<'t, S>> {
        let (mut parts, mut size) = (Vec::new(), 0);
        while size < self.size
            && let Some(part) = self.next_part()
        {
            // The addition ends a long run of empty texts.
            size += part.window.len() + 1;
            if let Err(error) = parts.try_push(part) {
                return Some(Err(error));
            }
        }
        (!parts.is_empty()).then_some(Ok(parts))
    }
}

/// The first safe cut at `start + size` or later. A cancelled call looks no further.
fn next_cut<S: Source + ?Sized>(
    text: &S,
    scanner: Scanner,
    specials: &SpecialTokens,
    start: usize,
    size: usize,
) -> Option<usize> {
    let may_be_cut = |(before, after)| specials.may_be_cut(scanner, before, after);
    let is_cut = |&position: &usize| text.around(position).is_some_and(may_be_cut);
    let (mut from, end) = (start + size, text.n_characters());
    while from < end && stop::check(&stop::current()).is_ok() {
        let until = end.min(from + WINDOW);
        if let Some(cut) = (from..until).find(is_cut) {
            return Some(cut);
        }
        from = until;
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
