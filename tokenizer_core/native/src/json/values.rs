//! Whole documents of strict JSON, read into a tree without the GIL.
//!
//! `tokenizer_core/strict_json.py` defines what is strict, and names every error. What this module
//! does not accept, or would read differently, is left to it: integers of more than 18 digits, floats
//! that are long or overflow, deep nesting, and everything invalid.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::json::text::string_at;
use crate::mem::growth::{Grow, NoMemory};

#[derive(Debug, PartialEq)]
pub enum Value<'d> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'d, str>),
    /// What is between the brackets of an array of integers alone, see `ints_of`: a tree of ids would be
    /// larger than the ids.
    Ints(&'d [u8]),
    Array(Vec<Value<'d>>),
    Object(Vec<(Cow<'d, str>, Value<'d>)>),
}

/// What a document may have. One with more is left to the other reader.
pub struct Limits {
    /// Strings, keys, arrays and objects; and as many numbers and words that are not in an array of
    /// integers alone.
    pub values: usize,
    /// Arrays and objects.
    pub containers: usize,
}

/// Arrays and objects within each other, as the other reader allows in a large document.
const MAX_DEPTH: usize = 8;
const MAX_INT_DIGITS: usize = 18;
const MAX_FLOAT_BYTES: usize = 64;
/// Equal keys are looked for one by one in an object with at most so many.
const FEW_KEYS: usize = 8;

/// Why there is no value.
#[derive(Debug, PartialEq)]
enum Failure {
    LeftToOthers,
    NoMemory,
}

use Failure::LeftToOthers;

impl From<NoMemory> for Failure {
    fn from(_: NoMemory) -> Failure {
        Failure::NoMemory
    }
}

/// The value of a document; None if it is left to the other reader.
pub fn read(document: &[u8], limits: Limits) -> Result<Option<Value<'_>>, NoMemory> {
    let mut reader = Reader {
        document,
        at: 0,
        n_scalars_left: limits.values,
        left: limits,
    };
    match reader.read_document() {
        Ok(value) => Ok(Some(value)),
        Err(LeftToOthers) => Ok(None),
        Err(Failure::NoMemory) => Err(NoMemory),
    }
}

struct Reader<'d> {
    document: &'d [u8],
    at: usize,
    left: Limits,
    /// Numbers and words that need a value of their own.
    n_scalars_left: usize,
}

impl<'d> Reader<'d> {
    fn read_document(&mut self) -> Result<Value<'d>, Failure> {
        self.skip_space();
        let value = self.read_value(0)?;
        self.skip_space();
        match self.at == self.document.len() {
            true => Ok(value),
            false => Err(LeftToOthers),
        }
    }

    fn read_value(&mut self, depth: usize) -> Result<Value<'d>, Failure> {
        match self.peek() {
            Some(b'"') => Ok(Value::Text(self.read_text()?)),
            Some(b'[' | b'{') => {
                take_one(&mut self.left.containers)?;
                take_one(&mut self.left.values)?;
                if depth == MAX_DEPTH {
                    return Err(LeftToOthers);
                }
                match self.next() {
                    Some(b'[') => self.read_array(depth + 1),
                    _ => self.read_object(depth + 1),
                }
            }
            _ => {
                take_one(&mut self.n_scalars_left)?;
                self.read_scalar()
            }
        }
    }

    /// The rest of an array, after its bracket.
    fn read_array(&mut self, depth: usize) -> Result<Value<'d>, Failure> {
        let (start, mut values) = (self.at, Vec::new());
        self.skip_space();
        if self.skip(b']') {
            return Ok(Value::Array(values));
        }
        loop {
            let is_int = values.is_empty() && self.int().is_some();
            if !is_int {
                if values.is_empty() {
                    values.try_reserve_exact(1).map_err(NoMemory::from)?;
                    for int in ints_of(&self.document[start..self.at]) {
                        take_one(&mut self.n_scalars_left)?;
                        values.try_push(Value::Int(int))?;
                    }
                }
                values.try_push(self.read_value(depth)?)?;
            }
            self.skip_space();
            match self.next() {
                Some(b',') => self.skip_space(),
                Some(b']') if values.is_empty() => {
                    return Ok(Value::Ints(&self.document[start..self.at - 1]));
                }
                Some(b']') => return Ok(Value::Array(values)),
                _ => return Err(LeftToOthers),
            }
        }
    }

    /// The rest of an object, after its brace.
    fn read_object(&mut self, depth: usize) -> Result<Value<'d>, Failure> {
        let mut members = Vec::new();
        self.skip_space();
        if self.skip(b'}') {
            return Ok(Value::Object(members));
        }
        // Many objects have one member, and a vector would begin with room for four.
        members.try_reserve_exact(1).map_err(NoMemory::from)?;
        loop {
            let key = self.read_text()?;
            self.skip_space();
            if !self.skip(b':') {
                return Err(LeftToOthers);
            }
            self.skip_space();
            let value = self.read_value(depth)?;
            members.try_push((key, value))?;
            self.skip_space();
            match self.next() {
                Some(b',') => self.skip_space(),
                Some(b'}') if has_a_key_twice(&members)? => return Err(LeftToOthers),
                Some(b'}') => return Ok(Value::Object(members)),
                _ => return Err(LeftToOthers),
            }
        }
    }

    fn read_text(&mut self) -> Result<Cow<'d, str>, Failure> {
        take_one(&mut self.left.values)?;
        let (text, end) = string_at(self.document, self.at)?.ok_or(LeftToOthers)?;
        self.at = end;
        Ok(text)
    }

    /// A number or a word.
    fn read_scalar(&mut self) -> Result<Value<'d>, Failure> {
        for (word, value) in [
            (&b"true"[..], Value::Bool(true)),
            (b"false", Value::Bool(false)),
            (b"null", Value::Null),
        ] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.int() {
            Some(int) => Ok(Value::Int(int)),
            None => self.read_float(),
        }
    }

    /// The integer that begins here, if it is one.
    fn int(&mut self) -> Option<i64> {
        let (int, n_bytes) = int_at_start(self.rest())?;
        self.at += n_bytes;
        Some(int)
    }

    fn read_float(&mut self) -> Result<Value<'d>, Failure> {
        let rest = self.rest();
        let minus = usize::from(rest.first() == Some(&b'-'));
        let mut end = minus + n_digits(&rest[minus..]);
        let has_digits = end == minus + 1 || end > minus + 1 && rest[minus] != b'0';
        if !has_digits {
            return Err(LeftToOthers);
        }
        let whole = end;
        if rest.get(end) == Some(&b'.') {
            let n_digits = n_digits(&rest[end + 1..]);
            if n_digits == 0 {
                return Err(LeftToOthers);
            }
            end += 1 + n_digits;
        }
        if let Some(b'e' | b'E') = rest.get(end) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let n_digits = n_digits(&rest[end + 1 + sign..]);
            if n_digits == 0 {
                return Err(LeftToOthers);
            }
            end += 1 + sign + n_digits;
        }
        let number = std::str::from_utf8(&rest[..end]).ok();
        let number = number.filter(|number| end > whole && number.len() <= MAX_FLOAT_BYTES);
        let number = number.and_then(|number| number.parse::<f64>().ok());
        let number = number.filter(|number| number.is_finite());
        self.at += end;
        number.map(Value::Float).ok_or(LeftToOthers)
    }

    fn rest(&self) -> &'d [u8] {
        &self.document[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.document.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }
}

/// The integers of a list: what `Value::Ints` holds.
pub fn ints_of(list: &[u8]) -> impl Iterator<Item = i64> {
    let numbers = list.split(|&byte| byte == b',');
    numbers.filter_map(|number| Some(int_at_start(number.trim_ascii_start())?.0))
}

/// The integer with which `bytes` begin, and its length.
pub fn int_at_start(bytes: &[u8]) -> Option<(i64, usize)> {
    let minus = usize::from(bytes.first() == Some(&b'-'));
    let digits = &bytes[minus..];
    let n_digits = n_digits(digits);
    let is_int = match digits.get(n_digits) {
        Some(b'.' | b'e' | b'E') => false,
        _ => n_digits == 1 || (2..=MAX_INT_DIGITS).contains(&n_digits) && digits[0] != b'0',
    };
    if !is_int {
        return None;
    }
    let numbers = digits[..n_digits].iter();
    let size = numbers.fold(0, |number, digit| 10 * number + i64::from(digit - b'0'));
    Some((if minus == 1 { -size } else { size }, minus + n_digits))
}

fn n_digits(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}

fn take_one(left: &mut usize) -> Result<(), Failure> {
    *left = left.checked_sub(1).ok_or(LeftToOthers)?;
    Ok(())
}

fn has_a_key_twice(members: &[(Cow<str>, Value)]) -> Result<bool, NoMemory> {
    if members.len() <= FEW_KEYS {
        let seen = |i: usize| members[..i].iter().any(|(key, _)| *key == members[i].0);
        return Ok((1..members.len()).any(seen));
    }
    let mut keys = HashSet::new();
    keys.try_reserve(members.len())?;
    Ok(!members.iter().all(|(key, _)| keys.insert(&**key)))
}
