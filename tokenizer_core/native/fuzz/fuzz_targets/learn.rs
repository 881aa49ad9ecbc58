//! Learning merges: any words, both tie rules, any tuning, against counting everything anew.
#![no_main]

use std::collections::HashMap;

use fuzzing::inputs::Choices;
use libfuzzer_sys::fuzz_target;
use tokenizer_native::train::learn::{Rules, TieBreak, Tuning, learn};

type Merge = (Vec<u8>, Vec<u8>);

/// The order of Hugging Face's first 256 ids: the bytes its alphabet shows as themselves, then the
/// others.
fn hugging_face_order() -> HashMap<Vec<u8>, usize> {
    let is_shown = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let shown = (0..=255u8).filter(is_shown);
    let others = (0..=255u8).filter(|byte| !is_shown(byte));
    shown
        .chain(others)
        .map(|byte| vec![byte])
        .zip(0..)
        .collect()
}

fn learn_naively(words: &[(Vec<u8>, u64)], n_merges: usize, rules: &Rules) -> Vec<Merge> {
    let mut order = hugging_face_order();
    let mut split: Vec<(Vec<Vec<u8>>, u64)> = (words.iter())
        .map(|(word, count)| (word.iter().map(|&byte| vec![byte]).collect(), *count))
        .collect();
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        let mut counts: HashMap<Merge, u64> = HashMap::new();
        for (word, count) in &split {
            for pair in word.windows(2) {
                *counts
                    .entry((pair[0].clone(), pair[1].clone()))
                    .or_default() += count;
            }
        }
        counts.retain(|pair, n| {
            *n >= rules.min_frequency && pair.0.len() + pair.1.len() <= rules.max_token_length
        });
        let best = counts.into_iter().max_by(|(a, n), (b, m)| {
            n.cmp(m).then_with(|| match rules.tie_break {
                TieBreak::Lexicographic => a.cmp(b),
                TieBreak::HuggingFace => {
                    (order[&b.0], order[&b.1]).cmp(&(order[&a.0], order[&a.1]))
                }
            })
        });
        let Some(((left, right), _)) = best else {
            break;
        };
        let product = [&left[..], &right].concat();
        for (word, _) in &mut split {
            let mut at = 0;
            while at + 1 < word.len() {
                if word[at] == left && word[at + 1] == right {
                    word.remove(at + 1);
                    word[at] = product.clone();
                }
                at += 1;
            }
        }
        let next = order.len();
        order.entry(product).or_insert(next);
        merges.push((left, right));
    }
    merges
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let tie_break = choices.of(&[TieBreak::Lexicographic, TieBreak::HuggingFace]);
    let rules = Rules {
        min_frequency: choices.of(&[1, 1, 2, 9]),
        max_token_length: choices.of(&[usize::MAX, 2, 3, 6]),
        ..Rules::new(tie_break)
    };
    let tuning = Tuning {
        threshold_divisor: 1 + choices.below(40) as u64,
        small_arena: choices.of(&[0, 10, 1 << 18]),
        pairs_per_merge: choices.below(5),
        min_pairs: choices.below(20),
        dense_pairs: choices.of(&[0, 1 << 21]),
    };
    let n_merges = choices.below(64);
    let alphabet = choices.of(&[
        &b"ab"[..],
        b"abc",
        b" ab\xC3\xA9",
        b"a\xE6\xBC\xA2\xE5\xAD\x97",
    ]);
    let mut words: HashMap<Vec<u8>, u64> = HashMap::new();
    while !choices.is_over() && words.len() < 30 {
        let count = u64::from(choices.byte() % 6) + 1;
        let length = 1 + choices.below(14);
        let word: Vec<u8> = (0..length).map(|_| choices.of(alphabet)).collect();
        *words.entry(word).or_default() += count;
    }
    let words: Vec<(Vec<u8>, u64)> = words.into_iter().collect();
    let expected = learn_naively(&words, n_merges, &rules);
    let given = words.iter().map(|(word, count)| (&word[..], *count));
    let learned = learn(given, n_merges, &rules, tuning, &mut |_| true).expect("not cancelled");
    let bytes = |symbol: u32| learned.tokens.get(symbol as usize).to_vec();
    let merges: Vec<Merge> = (learned.merges.iter())
        .map(|&(left, right)| (bytes(left), bytes(right)))
        .collect();
    assert_eq!(merges, expected);
    assert_eq!(learned.no_pair_left, expected.len() < n_merges);
});
