//! The scanners split as the published expressions do.
#![no_main]

use std::sync::LazyLock;

use fuzzing::definitions::{Splitter, ends_by_scanner};
use fuzzing::inputs::text_of;
use libfuzzer_sys::fuzz_target;

static SPLITTERS: LazyLock<Vec<Splitter>> = LazyLock::new(Splitter::all);

fuzz_target!(|data: &[u8]| {
    let text = text_of(data, 600);
    for splitter in SPLITTERS.iter() {
        let ends = ends_by_scanner(splitter.scanner, &text);
        if let Some(expected) = splitter.ends_by_expression(&text) {
            assert_eq!(ends, expected, "{} of {text:?}", splitter.name);
        }
    }
});
