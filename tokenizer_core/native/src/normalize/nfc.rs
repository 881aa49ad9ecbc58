//! Where NFC may change a text. Normalizing itself is left to Python.

use std::sync::LazyLock;

use crate::mem::growth::Grow;
use crate::normalize::nfc_ranges::RANGES;
use crate::simd::{Instructions, Kernel, Work};
use crate::unicode::utf8::{CodePoint, NoUtf8};

/// A bit for each code point up to the last that NFC may change.
static MAY_CHANGE: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let last = RANGES.last().expect("there are some").1;
    let mut bits = vec![0; last as usize / 64 + 1];
    for (first, last) in RANGES {
        for code in first..=last {
            bits[code as usize / 64] |= 1 << (code % 64);
        }
    }
    bits
});

/// Whether NFC may change a code point, alone or together with its neighbours.
pub fn may_change_under_nfc(code: u32) -> bool {
    let code = code as usize;
    MAY_CHANGE
        .get(code / 64)
        .is_some_and(|bits| bits >> (code % 64) & 1 != 0)
}

/// First positions and ends of the runs of characters that NFC may change; None if there are more
/// than `max_runs`. Every other character normalizes to itself, and the text from it on normalizes
/// independently. Fails for a surrogate.
pub fn nfc_runs<U: CodePoint>(
    points: &[U],
    max_runs: usize,
) -> Result<Option<Vec<(usize, usize)>>, NoUtf8> {
    Kernel::chosen().run(NfcRuns { points, max_runs })
}

struct NfcRuns<'u, U> {
    points: &'u [U],
    max_runs: usize,
}

impl<U: CodePoint, K: Instructions> Work<K> for NfcRuns<'_, U> {
    type Output = Result<Option<Vec<(usize, usize)>>, NoUtf8>;

    #[inline(always)]
    fn run(self, _: K) -> Self::Output {
        let (mut runs, mut is_more): (Vec<(usize, usize)>, _) = (Vec::new(), false);
        for (position, block) in self.points.chunks(BLOCK).enumerate() {
            if is_plain(block) {
                continue;
            }
            for (at, &point) in (position * BLOCK..).zip(block) {
                let code = point.into();
                if code & !0x7FF == 0xD800 {
                    return Err(NoUtf8::Surrogate);
                }
                if !may_change_under_nfc(code) {
                    continue;
                }
                let n_runs = runs.len();
                match runs.last_mut() {
                    Some((_, end)) if *end == at => *end = at + 1,
                    _ if n_runs == self.max_runs => is_more = true,
                    _ => runs.try_push((at, at + 1))?,
                }
            }
        }
        Ok((!is_more).then_some(runs))
    }
}

/// Code points looked at together.
const BLOCK: usize = 32;

/// Frequent characters that NFC never changes, from the first to before the last: Latin, Cyrillic,
/// quotes and dashes, kana, ideographs, Hangul, emoji. The first range begins at zero.
const PLAIN: [(u32, u32); 8] = [
    (0, 0x300),
    (0x400, 0x483),
    (0x2002, 0x20D0),
    (0x3001, 0x302A),
    (0x3041, 0x3099),
    (0x309B, 0xA000),
    (0xAC00, 0xD7A4),
    (0x1F000, 0x20000),
];

/// Whether all are among those.
#[inline(always)]
fn is_plain<U: CodePoint>(block: &[U]) -> bool {
    let all_within = |ranges: &[(u32, u32)]| {
        block.iter().fold(true, |all, &point| {
            let code: u32 = point.into();
            let is_within = |&(first, end): &(u32, u32)| code.wrapping_sub(first) < end - first;
            all & ranges
                .iter()
                .fold(false, |any, range| any | is_within(range))
        })
    };
    all_within(&PLAIN[..1]) || all_within(&PLAIN)
}
