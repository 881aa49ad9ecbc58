//! Python objects whose memory the engine fills itself, so that no result is copied, and others that
//! need not fit the memory: PyO3's functions panic where these raise MemoryError.

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// A new `bytes` and its memory.
///
/// # Safety
/// The caller writes all of the memory before any other code sees the object.
pub unsafe fn new_bytes(
    py: Python<'_>,
    n_bytes: usize,
) -> PyResult<(Bound<'_, PyAny>, &mut [MaybeUninit<u8>])> {
    // SAFETY: the function gives a new reference, or null with an exception set. The memory has this
    // size, belongs to the object, and nobody else sees it before the object is returned. Empty
    // objects are shared, and nothing is written to them.
    unsafe {
        let bytes = ffi::PyBytes_FromStringAndSize(std::ptr::null(), n_bytes as ffi::Py_ssize_t);
        let object = Bound::from_owned_ptr_or_err(py, bytes)?;
        let start = ffi::PyBytes_AS_STRING(object.as_ptr()).cast_mut();
        Ok((
            object,
            std::slice::from_raw_parts_mut(start.cast(), n_bytes),
        ))
    }
}

/// Writes as many bytes as there are of both.
pub fn fill(memory: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    for (place, byte) in memory.iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

/// A new `str` of ASCII and its memory.
///
/// # Safety
/// As of `new_bytes`, and only ASCII is written.
pub unsafe fn new_ascii(
    py: Python<'_>,
    n_bytes: usize,
) -> PyResult<(Bound<'_, PyAny>, &mut [MaybeUninit<u8>])> {
    // SAFETY: as in `new_bytes`.
    unsafe {
        let text = ffi::PyUnicode_New(n_bytes as ffi::Py_ssize_t, 127);
        let object = Bound::from_owned_ptr_or_err(py, text)?;
        let start = ffi::PyUnicode_DATA(object.as_ptr());
        Ok((
            object,
            std::slice::from_raw_parts_mut(start.cast(), n_bytes),
        ))
    }
}

/// A new list of `items`.
pub fn new_list<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyList>> {
    let n_items = items.len();
    // SAFETY: the function gives a new reference to a list, or null with an exception set.
    let list = unsafe {
        let list = ffi::PyList_New(n_items as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, list)?.cast_into_unchecked::<PyList>()
    };
    let mut n_set = 0;
    for item in items.take(n_items) {
        // SAFETY: the list has so many positions, nothing else has a reference to it, and each position is
        // empty until it is set here. A list with empty positions may be dropped.
        unsafe { ffi::PyList_SET_ITEM(list.as_ptr(), n_set as ffi::Py_ssize_t, item?.into_ptr()) };
        n_set += 1;
    }
    assert_eq!(n_set, n_items);
    Ok(list)
}

/// A new `bytes` with a copy of `bytes`.
pub fn bytes_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the function reads this memory, and gives a new reference, or null with an exception set.
    unsafe {
        let length = bytes.len() as ffi::Py_ssize_t;
        let copy = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length);
        Bound::from_owned_ptr_or_err(py, copy)
    }
}

/// A `str` of so many bytes of text is filled without the GIL: Python takes 1.5 ms for 1 MB of Chinese,
/// in which no other thread runs.
pub const LONG_BYTES: usize = 1 << 16;

/// A new `str` with a copy of `text`.
pub fn str_of<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    if text.len() >= LONG_BYTES {
        return long_str_of(py, text);
    }
    // SAFETY: the function reads this memory, and gives a new reference to a `str`, or null with an
    // exception set.
    unsafe {
        let length = text.len() as ffi::Py_ssize_t;
        let string = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), length);
        Ok(Bound::from_owned_ptr_or_err(py, string)?.cast_into_unchecked())
    }
}

fn long_str_of<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    let (n_characters, widest) = py.detach(|| Width::of(text));
    // SAFETY: the function gives a new reference to a `str`, or null with an exception set. Its width is
    // that of the largest code point. The memory has room for so many characters of it, belongs to the
    // object, and nobody else sees it before all of them are written.
    unsafe {
        let string = ffi::PyUnicode_New(n_characters as ffi::Py_ssize_t, widest as u32);
        let string = Bound::from_owned_ptr_or_err(py, string)?;
        let start = Start(ffi::PyUnicode_DATA(string.as_ptr()));
        py.detach(|| match widest {
            Width::Ascii => start.copy(text),
            Width::Latin1 => start.write::<u8>(text),
            Width::Two => start.write::<u16>(text),
            Width::Four => start.write::<u32>(text),
        });
        Ok(string.cast_into_unchecked())
    }
}

/// The widths in which Python stores text, as the largest code point of each (PEP 393).
#[derive(Clone, Copy)]
enum Width {
    Ascii = 0x7F,
    Latin1 = 0xFF,
    Two = 0xFFFF,
    Four = 0x10_FFFF,
}

impl Width {
    /// The number of characters of a text, and the least width for them.
    fn of(text: &str) -> (usize, Width) {
        let (mut n_characters, mut largest) = (0, 0);
        for block in text.as_bytes().chunks(255) {
            // The first byte of a character says how large it is; the others are 0x80 to 0xBF.
            let n_inner: u8 = block
                .iter()
                .map(|&byte| u8::from(byte & 0xC0 == 0x80))
                .sum();
            n_characters += block.len() - n_inner as usize;
            largest = block
                .iter()
                .fold(largest, |largest, &byte| byte.max(largest));
        }
        let width = match largest {
            0..0x80 => Width::Ascii,
            0x80..0xC4 => Width::Latin1,
            0xC4..0xF0 => Width::Two,
            0xF0.. => Width::Four,
        };
        (n_characters, width)
    }
}

/// Where the characters of a new `str` are.
struct Start(*mut std::ffi::c_void);

// SAFETY: nothing else uses this memory meanwhile.
unsafe impl Sync for Start {}

impl Start {
    /// # Safety
    /// There is room for the text, which is ASCII.
    unsafe fn copy(&self, text: &str) {
        // SAFETY: by the promise of the caller.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), text.len()) }
    }

    /// # Safety
    /// There is room for the characters of the text, none of which is wider.
    unsafe fn write<U: TryFrom<u32>>(&self, text: &str) {
        let mut at = self.0.cast::<U>();
        for character in text.chars() {
            let point = U::try_from(character.into()).unwrap_or_else(|_| unreachable!());
            // SAFETY: by the promise of the caller.
            unsafe {
                at.write(point);
                at = at.add(1);
            }
        }
    }
}

/// A new `str` of these bytes, with U+FFFD for what is not UTF-8.
pub fn replaced_str_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: as in `str_of`; the name of the error handler ends with a zero.
    unsafe {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        let string = ffi::PyUnicode_DecodeUTF8(start, length, c"replace".as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, string)?.cast_into_unchecked())
    }
}

/// An `int`.
pub fn int_of(py: Python<'_>, number: usize) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the function gives a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromSize_t(number)) }
}

/// An `int` that may be negative.
pub fn signed_int_of(py: Python<'_>, number: i64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: as in `int_of`.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromLongLong(number)) }
}

/// A `float`.
pub fn float_of(py: Python<'_>, number: f64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: as in `int_of`.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyFloat_FromDouble(number)) }
}

/// A list without items, and a dictionary without entries.
pub fn empty_list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: the function gives a new reference to a list, or null with an exception set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyList_New(0))?.cast_into_unchecked()) }
}

pub fn empty_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: the function gives a new reference to a dictionary, or null with an exception set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyDict_New())?.cast_into_unchecked()) }
}

/// A tuple of two.
pub fn pair_of<'py>(items: [Bound<'py, PyAny>; 2]) -> PyResult<Bound<'py, PyAny>> {
    let [first, second] = items;
    let py = first.py();
    // SAFETY: the function adds references to both, and gives a new one to a tuple, or null with an
    // exception set.
    unsafe {
        let pair = ffi::PyTuple_Pack(2, first.as_ptr(), second.as_ptr());
        Bound::from_owned_ptr_or_err(py, pair)
    }
}
