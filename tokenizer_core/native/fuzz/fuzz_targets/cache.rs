//! Very many distinct pieces through caches that outlive an input: a full table, the entries copied
//! to its successor and those that remain all give the ids of the definition.
#![no_main]

use fuzzing::inputs::Choices;
use fuzzing::tokenizers::lasting;
use libfuzzer_sys::fuzz_target;

/// Piece `number` of a family: each number another piece, of many lengths.
fn piece(number: u64, family: usize) -> String {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let times = [1, 1, 1, 2, 3, 5, 9][(mixed >> 40) as usize % 7];
    let unit = match family {
        0 => format!("{number:x}"),
        1 => format!("the{number:o}of"),
        2 => {
            char::from_u32(0x4E00 + (mixed >> 50) as u32).map_or_else(String::new, String::from)
                + &format!("{number:x}")
        }
        3 => number.to_string().replace('1', "ſ").replace('2', "\u{301}"),
        _ => format!("{mixed:x} {number:b}"),
    };
    unit.repeat(times)
}

fuzz_target!(|data: &[u8]| {
    let all = lasting();
    let mut choices = Choices(data);
    let chosen = &all[choices.below(all.len())].both;
    let (family, first, n) = (choices.below(5), choices.u32() >> 8, choices.below(256) * 2);
    let first = u64::from(first);
    let numbers = (first..first + n as u64).chain((0..n as u64 / 4).map(|i| first / 2 + i));
    let pieces: Vec<String> = numbers.map(|number| piece(number, family)).collect();
    let expected: Vec<u32> = (pieces.iter())
        .flat_map(|piece| chosen.definition.encode(piece.as_bytes()))
        .collect();
    for round in ["first", "again"] {
        let mut ids = Vec::new();
        let pieces = pieces.iter().map(String::as_str);
        let done = chosen.encoder.encode_pieces(pieces, &mut ids);
        done.expect("memory for a short text");
        assert!(
            ids == expected,
            "{round}: family {family}, {n} from {first}"
        );
    }
    let (_, _, entries, maximum) = chosen.encoder.statistics();
    assert!(entries <= maximum);
});
