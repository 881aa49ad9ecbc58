//! Strings of JSON, decoded where they are in a document.

use std::borrow::Cow;

use crate::mem::growth::{Grow, NoMemory, with_room};

/// The most bytes of the options in a body with a text.
const MOST_OPTIONS: usize = 256;

type TextAndOptions<'d> = (Cow<'d, str>, Vec<u8>);

/// The text of an object that begins with the member `"text"`, and the document with an empty text in
/// its place: the options. Those are not checked.
///
/// None for another document, for long options, and as for `string_at`.
pub fn text_and_options(document: &[u8]) -> Result<Option<TextAndOptions<'_>>, NoMemory> {
    let after = |bytes: &[u8], mark: &[u8]| {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let n_spaces = bytes.iter().take_while(is_space).count();
        bytes[n_spaces..]
            .starts_with(mark)
            .then_some(n_spaces + mark.len())
    };
    let mut start = 0;
    for mark in [&b"{"[..], b"\"text\"", b":", b"\""] {
        let Some(n_bytes) = after(&document[start..], mark) else {
            return Ok(None);
        };
        start += n_bytes;
    }
    let Some((text, end)) = string_at(document, start - 1)? else {
        return Ok(None);
    };
    let parts = [&document[..start], &document[end - 1..]];
    if parts.iter().map(|part| part.len()).sum::<usize>() > MOST_OPTIONS {
        return Ok(None);
    }
    Ok(Some((text, parts.concat())))
}

/// The text of the JSON string whose opening quote is at `start`, and the index after its closing
/// quote.
///
/// None if no string begins there, or if it is invalid: an unknown escape, a control character,
/// bytes that are not UTF-8, a lone surrogate.
pub fn string_at(document: &[u8], start: usize) -> Result<Option<(Cow<'_, str>, usize)>, NoMemory> {
    let rest = document.get(start..).unwrap_or_default();
    let Some(string) = rest.strip_prefix(b"\"") else {
        return Ok(None);
    };
    let Some((text, end)) = read_string(string)? else {
        return Ok(None);
    };
    let checked = match text {
        Cow::Borrowed(bytes) => simdutf8::basic::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => match simdutf8::basic::from_utf8(&bytes) {
            // SAFETY: they are UTF-8. `String::from_utf8` takes 15 times as long for Chinese.
            Ok(_) => Some(Cow::Owned(unsafe { String::from_utf8_unchecked(bytes) })),
            Err(_) => None,
        },
    };
    Ok(checked.map(|text| (text, start + 1 + end)))
}

type BytesAndEnd<'d> = (Cow<'d, [u8]>, usize);

/// The bytes of a string that begins after its quote, and where it ends.
///
/// They are UTF-8 if the bytes between the quotes are: an escape stands for whole characters, and
/// no neighbour can take a part of one.
fn read_string(string: &[u8]) -> Result<Option<BytesAndEnd<'_>>, NoMemory> {
    let mut at = plain_run(string);
    if string.get(at) == Some(&b'"') {
        return Ok(Some((Cow::Borrowed(&string[..at]), at + 1)));
    }
    // Little, because a document may have a million such strings; a long one grows in a few steps.
    let mut text = with_room(string.len().min(at + 16))?;
    text.try_extend(&string[..at])?;
    loop {
        match string.get(at) {
            Some(b'"') => return Ok(Some((Cow::Owned(text), at + 1))),
            Some(b'\\') => {}
            _ => return Ok(None), // a control character, or no end
        }
        text.try_reserve(ESCAPED_BYTES)?;
        let Some(n_escape) = read_escape(&string[at + 1..], &mut text) else {
            return Ok(None);
        };
        at += 1 + n_escape;
        let n_plain = plain_run(&string[at..]);
        text.try_extend(&string[at..at + n_plain])?;
        at += n_plain;
    }
}

/// Bytes of the character of an escape at most.
const ESCAPED_BYTES: usize = 4;

/// How many bytes come before a quote, a backslash or a control character.
fn plain_run(bytes: &[u8]) -> usize {
    let n_plain = plain_blocks::<64>(bytes);
    let n_plain = n_plain + plain_blocks::<8>(&bytes[n_plain..]);
    let rest = &bytes[n_plain..];
    n_plain + rest.iter().position(ends_run).unwrap_or(rest.len())
}

/// The length of the blocks of `N` bytes before the first that contains an end.
fn plain_blocks<const N: usize>(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<N>();
    // A block is tested without a branch, which a few wide instructions do.
    let is_plain = |block: &&[u8; N]| {
        block
            .iter()
            .fold(0, |found, byte| found | ends_run(byte) as u8)
            == 0
    };
    N * blocks.iter().take_while(is_plain).count()
}

fn ends_run(byte: &u8) -> bool {
    (*byte < b' ') | (*byte == b'"') | (*byte == b'\\')
}

/// Appends the character of an escape, given after its backslash; returns its length.
fn read_escape(escape: &[u8], text: &mut Vec<u8>) -> Option<usize> {
    let byte = match *escape.first()? {
        b'u' => return read_code_point(escape, text),
        byte @ (b'"' | b'\\' | b'/') => byte,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    };
    text.push(byte);
    Some(1)
}

/// As `read_escape`, of `uXXXX`, or of two of them that are a pair of surrogates.
fn read_code_point(escape: &[u8], text: &mut Vec<u8>) -> Option<usize> {
    let first = read_unit(escape)?;
    let (code_point, length) = match first {
        0xD800..0xDC00 => {
            let second = read_unit(escape.get(5..)?.strip_prefix(b"\\")?)?;
            let low = second.checked_sub(0xDC00).filter(|&low| low < 0x400)?;
            (0x1_0000 + ((first - 0xD800) << 10) + low, 11)
        }
        _ => (first, 5),
    };
    let character = char::from_u32(code_point)?; // none for a low surrogate alone
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(length)
}

/// The number in `uXXXX`.
fn read_unit(escape: &[u8]) -> Option<u32> {
    let digits = escape.strip_prefix(b"u")?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit, &digit| {
        Some(unit << 4 | (digit as char).to_digit(16)?)
    })
}
