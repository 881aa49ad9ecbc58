//! Pieces as keys of the tables.

/// Pieces up to this length are keys of the first table.
pub const MAX_SHORT_BYTES: usize = 15;
/// Pieces up to this length may be keys of the second.
pub const MAX_MIDDLE_BYTES: usize = 31;

/// The key of a piece of the second table: its bytes, and its length in the last of 32.
pub type MiddleKey = [u64; 4];

/// The key of `text[start..start + length]`, of at most 31 bytes, in the second table.
#[inline(always)]
pub fn middle_key(text: &[u8], start: usize, length: usize) -> MiddleKey {
    let mut padded = [0; 32];
    let bytes = match text[start..].first_chunk::<32>() {
        Some(bytes) => bytes,
        None => {
            padded[..length].copy_from_slice(&text[start..start + length]);
            &padded
        }
    };
    let half = |position: usize| {
        let n_bytes = length.saturating_sub(16 * position).min(16);
        let half = bytes[16 * position..].first_chunk().expect("16 bytes");
        u128::from_le_bytes(*half) & u128::MAX.checked_shr(128 - 8 * n_bytes as u32).unwrap_or(0)
    };
    let ([a, b], [c, d]) = (words(half(0)), words(half(1) | (length as u128) << 120));
    [a, b, c, d]
}

#[inline(always)]
pub fn words(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

#[inline(always)]
pub fn word(words: [u64; 2]) -> u128 {
    u128::from(words[0]) | u128::from(words[1]) << 64
}
