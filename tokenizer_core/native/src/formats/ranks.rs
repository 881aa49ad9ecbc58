//! Tokens in base64: rank files of tiktoken, and the vocabulary of a `tekken.json`.

use memchr::{memchr, memchr_iter};

use crate::formats::reader::{MAX_BYTES, MAX_IDS, Reader};
use crate::formats::tokens::Tokens;
use crate::mem::growth::{NoMemory, filled, with_room};

/// There must be room for it. None if it is not complete base64 of at least a byte.
fn add_base64(tokens: &mut Tokens, base64: &[u8]) -> Option<()> {
    let (groups, []) = base64.as_chunks::<4>() else {
        return None;
    };
    let (&last, before) = groups.split_last()?;
    for group in before {
        let [_, first, second, third] = joined(group)?.to_be_bytes();
        tokens.bytes.extend([first, second, third]);
    }
    let n_bytes = match last {
        [_, _, b'=', b'='] => 1,
        [_, _, _, b'='] => 2,
        _ => 3,
    };
    let padded = last.map(|digit| if digit == b'=' { b'A' } else { digit });
    let value = joined(&padded)?;
    // Neither padding within the digits, nor bits that belong to no byte.
    let is_padded = last[..=n_bytes].iter().all(|&digit| digit != b'=');
    if !is_padded || value & (0xFF_FFFF >> (8 * n_bytes)) != 0 {
        return None;
    }
    tokens.bytes.extend(&value.to_be_bytes()[1..=n_bytes]);
    tokens.end();
    Some(())
}

/// The 24 bits of four digits.
fn joined(digits: &[u8; 4]) -> Option<u32> {
    let mut value = 0;
    for &digit in digits {
        let bits = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        value = value << 6 | u32::from(bits);
    }
    Some(value)
}

/// The tokens and the ranks, which are distinct, of the lines of a `.tiktoken` file.
pub fn read_ranks(document: &[u8]) -> Result<Option<(Tokens, Vec<u32>)>, NoMemory> {
    let n_lines = memchr_iter(b'\n', document).count();
    if n_lines > MAX_IDS || document.len() > MAX_BYTES {
        return Ok(None);
    }
    let mut tokens = Tokens::with_room(n_lines, document.len())?;
    let mut ranks = with_room(n_lines)?;
    let mut is_taken = filled(false, MAX_IDS)?;
    let mut read = |line: &[u8]| {
        let space = memchr(b' ', line)?;
        add_base64(&mut tokens, &line[..space])?;
        let mut reader = Reader::new(&line[space + 1..]);
        let rank = reader.id()?;
        let is_whole = line.len() == space + 1 + reader.at && line[space + 1].is_ascii_digit();
        ranks.push(rank);
        (is_whole && !std::mem::replace(&mut is_taken[rank as usize], true)).then_some(())
    };
    let Some(lines) = document.strip_suffix(b"\n") else {
        return Ok(None);
    };
    let are_read = lines
        .split(|&byte| byte == b'\n')
        .all(|line| read(line).is_some());
    Ok(are_read.then_some((tokens, ranks)))
}

/// A `tekken.json` without the entries of its `vocab`, and their tokens, whose ranks are their
/// positions.
pub fn read_tekken(document: &[u8]) -> Result<Option<(Vec<u8>, Tokens)>, NoMemory> {
    if document.len() > MAX_BYTES || simdutf8::basic::from_utf8(document).is_err() {
        return Ok(None);
    }
    let mut reader = Reader::new(document);
    let mut vocab = None;
    let found = reader.members(|reader, key| {
        let (first, start) = (reader.next_byte()?, reader.at);
        reader.skip_value()?;
        if key != b"vocab" {
            return Some(());
        }
        (first == b'[' && vocab.replace(start..reader.at).is_none()).then_some(())
    });
    let (Some(()), Some(vocab)) = (found, vocab) else {
        return Ok(None);
    };
    let list = &document[vocab.clone()];
    let n_at_most = memchr_iter(b'{', list).count().min(MAX_IDS);
    let mut tokens = Tokens::with_room(n_at_most, list.len())?;
    let mut reader = Reader::new(list);
    let read = reader.each(b'[', b']', |reader| {
        let rank = tokens.count();
        let mut n_found = [0; 3];
        reader.members(|reader, key| {
            match key {
                b"rank" if reader.id()? as usize == rank => n_found[0] += 1,
                b"token_bytes" => {
                    n_found[1] += 1;
                    add_base64(&mut tokens, reader.string()?.as_bytes())?;
                }
                b"token_str" => {
                    n_found[2] += 1;
                    reader.text_or_null()?;
                }
                _ => return None,
            }
            Some(())
        })?;
        (n_found == [1, 1, 1] && rank < MAX_IDS).then_some(())
    });
    if read.is_none() {
        return Ok(None);
    }
    let mut rest = with_room(document.len() - list.len() + 2)?;
    rest.extend_from_slice(&document[..vocab.start]);
    rest.extend_from_slice(b"[]");
    rest.extend_from_slice(&document[vocab.end..]);
    Ok(Some((rest, tokens)))
}
