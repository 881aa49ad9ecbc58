//! The scanners split as the published expressions do.
#![no_main]

use std::sync::LazyLock;

use fuzzing::definitions::{Splitter, ends_by_advance};
use fuzzing::inputs::text_of;
use libfuzzer_sys::fuzz_target;

static SPLITTERS: LazyLock<Vec<Splitter>> = LazyLock::new(Splitter::all);

fuzz_target!(|data: &[u8]| {
    let text = text_of(data, 600);
    for splitter in SPLITTERS.iter() {
        let ends = ends_by_advance(splitter.scanner, &text);
        let mut visited = Vec::new();
        let mut end = 0;
        splitter.scanner.for_each(&text, |piece| {
            end += piece.len();
            visited.push(end);
        });
        assert_eq!(visited, ends, "for_each and advance of {}", splitter.name);
        if let Some(expected) = splitter.ends_by_expression(&text) {
            assert_eq!(ends, expected, "{} of {text:?}", splitter.name);
        }
    }
});
