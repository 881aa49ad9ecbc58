//! Ids to bytes: any vocabulary with gaps, any ids, known or not.
#![no_main]

use fuzzing::inputs::Choices;
use libfuzzer_sys::fuzz_target;
use tokenizer_native::decode::vocabulary::Vocabulary;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let n_tokens = choices.below(40);
    let mut tokens: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut id = 0;
    for position in 0..n_tokens {
        id += u32::from(choices.byte() % 4);
        let length = 1 + choices.of(&[
            0, 1, 2, 6, 7, 13, 14, 15, 16, 17, 30, 31, 32, 62, 63, 64, 200,
        ]);
        tokens.push((id, (0..length).map(|i| (position * 7 + i) as u8).collect()));
        id += 1;
    }
    let vocabulary = Vocabulary::new(tokens.iter().map(|(id, t)| (*id, &t[..])).collect());
    let mut ids: Vec<u32> = Vec::new();
    while !choices.is_over() && ids.len() < 600 {
        match choices.byte() {
            0xFE => ids.push(choices.u32()),
            0xFF => ids.extend(vec![ids.last().copied().unwrap_or(0); choices.below(70)]),
            byte => ids.push(match tokens.len() {
                0 => u32::from(byte),
                n => tokens[usize::from(byte) % n].0,
            }),
        }
    }
    let bytes_of = |id: u32| {
        tokens
            .iter()
            .find(|token| token.0 == id)
            .map(|token| &token.1)
    };
    let expected: Result<Vec<u8>, usize> = (ids.iter().enumerate())
        .map(|(index, &id)| bytes_of(id).cloned().ok_or(index))
        .collect::<Result<Vec<_>, _>>()
        .map(|parts| parts.concat());
    let measured = vocabulary.measure(&ids[..]).map(|measure| measure.n_bytes);
    assert_eq!(
        measured,
        expected.as_ref().map(Vec::len).map_err(|&index| index)
    );
    if let Ok(bytes) = expected {
        let mut decoded = vec![0xA5];
        let done = vocabulary.append(&ids, &mut decoded);
        done.expect("memory for a short text");
        assert_eq!(decoded[1..], bytes);
    }
});
