//! The learner against BPE by its definition, and what it must withstand.

use super::first_merges::FirstMerges;
use super::merging::find_group;
use super::*;
use std::collections::HashMap;

type Merge = (Vec<u8>, Vec<u8>);

/// BPE by its definition, everything counted anew before every merge.
fn learn_naively(
    words: &[(Vec<u8>, u64)],
    n_merges: usize,
    rules: &Rules,
) -> (Vec<Merge>, Vec<u64>) {
    let order = TieOrder::new(TieBreak::HuggingFace);
    let mut ranks: HashMap<Vec<u8>, u64> = (0..=255_u8)
        .map(|b| (vec![b], u64::MAX - order.keys[usize::from(b)]))
        .collect();
    let mut split: Vec<(Vec<Vec<u8>>, u64)> = words
        .iter()
        .map(|(w, n)| (w.iter().map(|&b| vec![b]).collect(), *n))
        .collect();
    let mut merges = Vec::new();
    let mut given = first_merges_of(rules).into_iter();
    let mut token_counts = Vec::new();
    loop {
        let n_tokens = split.iter().map(|(word, n)| word.len() as u64 * n).sum();
        let next = given.next();
        if next.is_none() {
            token_counts.push(n_tokens);
            if merges.len() >= n_merges {
                break;
            }
        }
        let mut counts: HashMap<(Vec<u8>, Vec<u8>), u64> = HashMap::new();
        for (word, n) in &split {
            for pair in word.windows(2) {
                *counts
                    .entry((pair[0].clone(), pair[1].clone()))
                    .or_default() += n;
            }
        }
        counts.retain(|pair, n| {
            *n >= rules.min_frequency && pair.0.len() + pair.1.len() <= rules.max_token_length
        });
        let learned = counts.into_iter().max_by(|(a, n), (b, m)| {
            n.cmp(m).then_with(|| match rules.tie_break {
                TieBreak::Lexicographic => a.cmp(b),
                TieBreak::HuggingFace => {
                    (ranks[&b.0], ranks[&b.1]).cmp(&(ranks[&a.0], ranks[&a.1]))
                }
            })
        });
        let Some(best) = next.or(learned.map(|(pair, _)| pair)) else {
            break;
        };
        let joined = [best.0.clone(), best.1.clone()].concat();
        for (word, _) in &mut split {
            let mut i = 0;
            while i + 1 < word.len() {
                if word[i] == best.0 && word[i + 1] == best.1 {
                    word[i] = joined.clone();
                    word.remove(i + 1);
                }
                i += 1;
            }
        }
        let rank = ranks.len() as u64;
        ranks.entry(joined).or_insert(rank);
        merges.push(best);
    }
    (merges, token_counts)
}

/// The merges that are given, as bytes.
fn first_merges_of(rules: &Rules) -> Vec<Merge> {
    let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|b| vec![b]).collect();
    let mut merges = Vec::new();
    for &(left, right) in &rules.first_merges {
        let merge = (
            tokens[left as usize].clone(),
            tokens[right as usize].clone(),
        );
        tokens.push([merge.0.clone(), merge.1.clone()].concat());
        merges.push(merge);
    }
    merges
}

fn learn_here(words: &[(Vec<u8>, u64)], n_merges: usize, rules: &Rules, tuning: Tuning) -> Learned {
    let words = words.iter().map(|(word, count)| (word.as_slice(), *count));
    learn(words, n_merges, rules, tuning, &mut |_| true).expect("not cancelled")
}

fn pairs_of(learned: &Learned) -> Vec<Merge> {
    let bytes = |id: u32| learned.tokens.get(id as usize).to_vec();
    learned
        .merges
        .iter()
        .map(|&(left, right)| (bytes(left), bytes(right)))
        .collect()
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
                let given = FirstMerges::new(&rules.first_merges).unwrap();
                let n_left = given.apply(&mut symbols);
                symbols.truncate(n_left);
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
fn equals_the_definition() {
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
        let (merges, token_counts) = learn_naively(&words, n_merges, &rules);
        assert_eq!(pairs_of(&learned), merges, "{words:?} {rules:?} {tuning:?}");
        assert_eq!(learned.token_counts, token_counts);
        assert_eq!(learned.no_pair_left, merges.len() < n_merges);
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
