//! Whole texts: fast scan, caches, merging, tasks and threads give what the plain scanner and the
//! definition of merging give, and decoding gives the text back.
#![no_main]

use fuzzing::definitions::{assert_same, ends_by_scanner};
use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::lasting;
use libfuzzer_sys::fuzz_target;
use tokenizer_native::encode::specials::SpecialTokens;

fuzz_target!(|data: &[u8]| {
    let all = lasting();
    let mut choices = Choices(data);
    let chosen = &all[choices.below(all.len())];
    let (task_bytes, how, share) = (1 + choices.below(200), choices.byte(), choices.byte());
    let text = text_of(choices.rest(), 2000);
    let (encoder, scanner) = (&chosen.both.encoder, chosen.scanner);
    let ends = ends_by_scanner(scanner, &text);
    let expected = chosen.both.definition.encode_all(&text, &ends);
    let name = &chosen.name;

    let specials = SpecialTokens::none();
    for round in ["first", "again"] {
        let mut ids = Vec::new();
        let done = encoder.encode_document(scanner, &specials, &text, &mut ids);
        done.expect("memory for a short text");
        let what = format!("{name}, {round}");
        assert_same(&chosen.both.definition, &text, &ends, &ids, &what);
    }
    let count = |limit| {
        let counted = encoder.count_document(scanner, &specials, &text, limit);
        counted.expect("memory for a short text")
    };
    assert_eq!(count(None), expected.len());
    let limit = expected.len() * usize::from(share) / 255;
    let counted = count(Some(limit));
    assert_eq!(counted > limit, expected.len() > limit, "{name}: {text:?}");

    let n_threads = 1 + usize::from(how % 8 == 0) * 2;
    let sizes = (task_bytes, n_threads);
    let batch = encoder.encode_in_windows(scanner, &specials, &[&text[..]], sizes);
    let batch = batch.expect("memory for a short text");
    assert_eq!(
        batch.ids, expected,
        "{name}, tasks of {task_bytes}: {text:?}"
    );

    let mut decoded = Vec::new();
    let done = encoder.vocabulary().append(&expected, &mut decoded);
    done.expect("memory for a short text");
    assert_eq!(decoded, text.as_bytes());
});
