//! The learner with any tuning, and what it must withstand; `tests/property` has its definition.

use super::*;
use std::collections::HashMap;

fn learn_here(words: &[(Vec<u8>, u64)], n_merges: usize, rules: &Rules, tuning: Tuning) -> Learned {
    let words = words.iter().map(|(word, count)| (word.as_slice(), *count));
    learn(words, n_merges, rules, tuning, &mut |_| true).expect("not cancelled")
}

struct Random<F>(F);

impl<F: FnMut(usize) -> usize> Random<F> {
    fn words(&mut self) -> Vec<(Vec<u8>, u64)> {
        let alphabets: [&[u8]; 5] = [b"ab", b"a", b"abc\x00\xff", "é漢À".as_bytes(), b" abcdefgh"];
        let alphabet = alphabets[(self.0)(5)];
        let longest = 1 + (self.0)(14);
        let highest = [1, 3, 50][(self.0)(3)];
        let mut words: HashMap<Vec<u8>, u64> = HashMap::new();
        for _ in 0..1 + (self.0)(25) {
            let size = 1 + (self.0)(longest);
            let word = (0..size).map(|_| alphabet[(self.0)(alphabet.len())]);
            let word = word.collect();
            words.insert(word, 1 + (self.0)(highest) as u64);
        }
        words.into_iter().collect()
    }

    /// Half of them with limits and with merges that are given, which may be in none of the words.
    fn rules(&mut self, tie_break: TieBreak, words: &[(Vec<u8>, u64)]) -> Rules {
        let mut rules = Rules::new(tie_break);
        if (self.0)(2) == 0 {
            rules.min_frequency = 1 + (self.0)(60) as u64;
        }
        if (self.0)(2) == 0 {
            rules.max_token_length = 2 + (self.0)(6);
        }
        if (self.0)(2) == 0 {
            let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|b| vec![b]).collect();
            for _ in 0..(self.0)(6) {
                let (word, _) = &words[(self.0)(words.len())];
                let mut symbols: Vec<u32> = word.iter().copied().map(u32::from).collect();
                for (product, &(left, right)) in (256..).zip(&rules.first_merges) {
                    let mut i = 0;
                    while i + 1 < symbols.len() {
                        if (symbols[i], symbols[i + 1]) == (left, right) {
                            symbols[i] = product;
                            symbols.remove(i + 1);
                        }
                        i += 1;
                    }
                }
                if symbols.len() > 1 {
                    let position = (self.0)(symbols.len() - 1);
                    let pair = (symbols[position], symbols[position + 1]);
                    let sides = [&tokens[pair.0 as usize][..], &tokens[pair.1 as usize][..]];
                    tokens.push(sides.concat());
                    rules.first_merges.push(pair);
                }
            }
        }
        rules
    }
}

#[test]
fn no_tuning_changes_the_result() {
    let mut random = Random(crate::random::below(1));
    for round in 0..4000 {
        let words = random.words();
        let tie_break = [TieBreak::Lexicographic, TieBreak::HuggingFace][round % 2];
        let rules = random.rules(tie_break, &words);
        let n_merges = rules.first_merges.len() + (random.0)(60);
        let tuning = Tuning {
            threshold_divisor: 2 + (random.0)(4) as u64,
            small_arena: [0, 20, 1 << 20][(random.0)(3)],
            pairs_per_merge: (random.0)(3),
            min_pairs: (random.0)(5),
            dense_pairs: [0, 1 << 21][(random.0)(2)],
        };
        let learned = learn_here(&words, n_merges, &rules, tuning);
        let expected = learn_here(&words, n_merges, &rules, Tuning::default());
        assert_eq!(learned, expected, "{words:?} {rules:?} {tuning:?}");
    }
}

#[test]
fn wide_symbols_and_places_learn_the_same() {
    let mut random = Random(crate::random::below(2));
    for _ in 0..300 {
        let words = random.words();
        let given = || words.iter().map(|(word, count)| (word.as_slice(), *count));
        let tuning = Tuning {
            threshold_divisor: 3,
            small_arena: 10,
            ..Tuning::default()
        };
        let rules = random.rules(TieBreak::Lexicographic, &words);
        let narrow = Learner::<u16, u32>::new(given(), &rules, tuning);
        let wide = Learner::<u32, u64>::new(given(), &rules, tuning);
        let narrow = narrow.unwrap().run(&rules, 40, &mut |_| true);
        let wide = wide.unwrap().run(&rules, 40, &mut |_| true);
        assert_eq!(narrow, wide);
    }
}

#[test]
fn a_long_run_takes_no_time_and_no_stack() {
    let words = [(vec![b'a'; 1_000_003], 1)];
    let rules = Rules::new(TieBreak::Lexicographic);
    let learned = learn_here(&words, 100, &rules, Tuning::default());
    assert!(learned.no_pair_left);
    let longest = learned.merges.len() + 255;
    assert_eq!(learned.tokens.get(longest).len(), 1_000_003);
}
