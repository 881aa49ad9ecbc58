//! The learner with any tuning, and what it must withstand; `tests/property` has its definition.

use super::merging::find_group;
use super::*;
use std::collections::HashMap;

fn learn_here(words: &[(Vec<u8>, u64)], n_merges: usize, rules: &Rules, tuning: Tuning) -> Learned {
    let words = words.iter().map(|(word, count)| (word.as_slice(), *count));
    learn(words, n_merges, rules, tuning, &mut |_| true).expect("not cancelled")
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn words(&mut self) -> Vec<(Vec<u8>, u64)> {
        let alphabets: [&[u8]; 5] = [b"ab", b"a", b"abc\x00\xff", "é漢À".as_bytes(), b" abcdefgh"];
        let alphabet = alphabets[self.below(5) as usize];
        let longest = 1 + self.below(14);
        let highest = [1, 3, 50][self.below(3) as usize];
        let mut words: HashMap<Vec<u8>, u64> = HashMap::new();
        for _ in 0..1 + self.below(25) {
            let size = 1 + self.below(longest);
            let word = (0..size).map(|_| alphabet[self.below(alphabet.len() as u64) as usize]);
            let word = word.collect();
            words.insert(word, 1 + self.below(highest));
        }
        words.into_iter().collect()
    }

    /// Half of them with limits and with merges that are given, which may be in none of the words.
    fn rules(&mut self, tie_break: TieBreak, words: &[(Vec<u8>, u64)]) -> Rules {
        let mut rules = Rules::new(tie_break);
        if self.below(2) == 0 {
            rules.min_frequency = 1 + self.below(60);
        }
        if self.below(2) == 0 {
            rules.max_token_length = 2 + self.below(6) as usize;
        }
        if self.below(2) == 0 {
            let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|b| vec![b]).collect();
            for _ in 0..self.below(6) {
                let (word, _) = &words[self.below(words.len() as u64) as usize];
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
                    let position = self.below(symbols.len() as u64 - 1) as usize;
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
    let mut random = Random(1);
    for round in 0..4000 {
        let words = random.words();
        let tie_break = [TieBreak::Lexicographic, TieBreak::HuggingFace][round % 2];
        let rules = random.rules(tie_break, &words);
        let n_merges = rules.first_merges.len() + random.below(60) as usize;
        let tuning = Tuning {
            threshold_divisor: 2 + random.below(4),
            small_arena: [0, 20, 1 << 20][random.below(3) as usize],
            pairs_per_merge: random.below(3) as usize,
            min_pairs: random.below(5) as usize,
            dense_pairs: [0, 1 << 21][random.below(2) as usize],
        };
        let learned = learn_here(&words, n_merges, &rules, tuning);
        let expected = learn_here(&words, n_merges, &rules, Tuning::default());
        assert_eq!(learned, expected, "{words:?} {rules:?} {tuning:?}");
    }
}

#[test]
fn wide_symbols_and_places_learn_the_same() {
    let mut random = Random(2);
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

#[test]
fn groups_are_found_from_any_position() {
    let groups: Vec<Group> = (0..50)
        .map(|i| Group {
            end: 3 * i + 4,
            count: 1,
        })
        .collect();
    for from in 0..49 {
        for position in groups[from].end..groups[49].end {
            let found = find_group(&groups, from, position);
            assert!(groups[found].end > position && groups[found - 1].end <= position);
        }
    }
}
