//! What only the table and the threads know; `tests/property` compares counting with its definition.

use std::collections::HashMap;

use super::word_table::WordTable;
use super::*;
use crate::split::Scanner;

type Counts = HashMap<Vec<u8>, u64>;

fn to_map(words: &CountedWords) -> Counts {
    let map: Counts = words
        .iter()
        .map(|(word, count)| (word.to_vec(), count))
        .collect();
    assert_eq!(map.len(), words.len(), "a word was there twice");
    assert_eq!(map.values().sum::<u64>(), words.n_occurrences());
    map
}

#[test]
fn a_table_comes_back_from_the_disk_as_it_was() {
    let (mut table, mut expected) = (WordTable::new().unwrap(), Counts::new());
    let mut runs = Vec::new();
    for i in 0..9_000_usize {
        // Short and long words, with zeros in them, and counts of one and of many bytes.
        let word = [vec![(i % 5) as u8; i % 41], i.to_be_bytes()[6..].to_vec()].concat();
        let count = 1 << (i % 50);
        table.add(&word, count);
        *expected.entry(word).or_default() += count;
        if i % 1000 == 999 {
            runs.push(table.spill(&std::env::temp_dir()).expect("room"));
            assert_eq!(table.len(), 0);
        }
    }
    let last = runs.pop().expect("several");
    runs = vec![join_runs(&std::env::temp_dir(), runs).expect("room"), last];
    let words = sum_runs(runs).expect("readable");
    assert_eq!(to_map(&words), expected);
    let sorted: Vec<&[u8]> = words.iter().map(|(word, _)| word).collect();
    assert!(sorted.is_sorted());
    assert_eq!(sorted.len(), expected.len());
}

#[test]
fn a_counter_that_is_dropped_ends_its_threads() {
    let file = Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
    let rules = CountingRules::new(Arc::new(Pattern::Named(Scanner::Gpt2)), &[]).expect("none");
    let mut counter = Counter::new(rules, 3, None).unwrap();
    for _ in 0..50 {
        let file = Arc::clone(&file);
        let (start, end) = (0, 0);
        assert!(counter.submit(Chunk { file, start, end }));
    }
    drop(counter);
    assert_eq!(Arc::strong_count(&file), 1);
}
