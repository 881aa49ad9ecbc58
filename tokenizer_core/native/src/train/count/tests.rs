//! Counting in one chunk against any cut and any number of threads; `tests/property` has its
//! definition.

use std::collections::HashMap;
use std::io::Write;

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

/// A text of words of all lengths around the edges of keys, many of them many times.
fn sample_text() -> String {
    let mut text = String::new();
    for i in 0..3000_usize {
        let len = 1 + i * 7919 % 40;
        let letter = char::from(b'a' + (i % 26) as u8);
        text.push(' ');
        text.extend(std::iter::repeat_n(letter, len));
        text.push_str(["é漢字", " 12", "\n\n  x", "<e>", "<e><e>"][i % 5]);
    }
    text
}

fn temporary_file(name: &str, bytes: &[u8]) -> Arc<File> {
    let name = format!("tokenizer-native-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut file = File::create_new(&path).expect("a new file");
    file.write_all(bytes).expect("room");
    let file = File::open(&path).expect("just written");
    std::fs::remove_file(path).expect("just written");
    Arc::new(file)
}

fn count_in_chunks(
    file: &Arc<File>,
    cuts: &[u64],
    special_tokens: &[String],
    n_threads: usize,
    ceiling: Option<Ceiling>,
) -> Result<Counted, CountError> {
    let rules = CountingRules::new(Arc::new(Pattern::Named(Scanner::Gpt2)), special_tokens)
        .expect("few tokens");
    let mut counter = Counter::new(rules, n_threads, ceiling).unwrap();
    for ends in cuts.windows(2) {
        let (start, end, file) = (ends[0], ends[1], Arc::clone(file));
        if !counter.submit(Chunk { file, start, end }) {
            break;
        }
    }
    counter.finish()
}

#[test]
fn any_cut_and_any_number_of_threads_count_the_same() {
    let text = sample_text();
    let file = temporary_file("cuts", text.as_bytes());
    let special_tokens = ["<e>", "<e><e>", "<e> "].map(String::from);
    let whole = [0, text.len() as u64];
    let expected = count_in_chunks(&file, &whole, &special_tokens, 1, None).expect("valid");
    let expected = (to_map(&expected.words), expected.n_documents);
    // After a letter and before a space every pattern has a boundary.
    let is_cut = |&position: &usize| {
        text.as_bytes()[position] == b' ' && text.as_bytes()[position - 1].is_ascii_lowercase()
    };
    let positions: Vec<u64> = (1..text.len())
        .filter(is_cut)
        .map(|position| position as u64)
        .collect();
    for (step, n_threads) in [(usize::MAX, 1), (500, 1), (97, 2), (7, 5), (1, 3)] {
        let mut cuts = vec![0];
        cuts.extend(positions.iter().step_by(step));
        cuts.push(text.len() as u64);
        for ceiling in [None, Some(below_one_chunk())] {
            let spills = ceiling.is_some();
            let counted = count_in_chunks(&file, &cuts, &special_tokens, n_threads, ceiling);
            let counted = counted.expect("valid");
            assert_eq!(counted.words.len(), expected.0.len());
            assert_eq!((to_map(&counted.words), counted.n_documents), expected);
            assert_eq!(counted.n_spills >= cuts.len() as u64 - 1, spills);
        }
    }
    assert!(positions.len() > 3 * MAX_RUNS);
}

/// A ceiling that every chunk comes to.
fn below_one_chunk() -> Ceiling {
    Ceiling {
        memory_bytes: 1,
        folder: std::env::temp_dir(),
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let file = temporary_file("scratch", b"low lower lowest");
    let ceiling = Ceiling {
        folder: std::env::temp_dir().join("there/is/no/such/folder"),
        ..below_one_chunk()
    };
    let counted = count_in_chunks(&file, &[0, 3, 16], &[], 2, Some(ceiling));
    assert!(matches!(counted, Err(CountError::Scratch(_))));
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
fn a_table_counts_words_of_any_length_and_any_count() {
    let mut tables = [WordTable::new().unwrap(), WordTable::new().unwrap()];
    let mut expected = Counts::new();
    for i in 0..40_000_usize {
        let word = vec![(i % 3) as u8; i % 97 + 1];
        let word = if i % 2 == 0 {
            word
        } else {
            [word, i.to_le_bytes().to_vec()].concat()
        };
        let count = 1 << (i % 40);
        tables[i % 2].add(&word, count);
        *expected.entry(word).or_default() += count;
    }
    let [mut first, second] = tables;
    first.add_all(&second).unwrap();
    assert_eq!(first.len(), expected.len());
    assert_eq!(to_map(&first.into_words().unwrap()), expected);
}

#[test]
fn the_first_broken_chunk_is_told_of() {
    let mut bytes = vec![b'a'; 1000];
    bytes[555] = 0xFF;
    bytes[777] = 0xC3;
    let file = temporary_file("broken", &bytes);
    let cuts: Vec<u64> = (0..=100).map(|i| 10 * i).collect();
    for n_threads in [1, 4] {
        let error = count_in_chunks(&file, &cuts, &[], n_threads, None).expect_err("not UTF-8");
        assert!(matches!(
            error,
            CountError::Chunk(55, ChunkFailure::NotUtf8(5))
        ));
    }
    let error = count_in_chunks(&file, &[990, 1010], &[], 1, None).expect_err("too short");
    assert!(matches!(
        error,
        CountError::Chunk(0, ChunkFailure::Unreadable)
    ));
}

#[test]
fn of_two_failures_the_first_is_kept() {
    let failed = |number| Tally {
        failure: Some((number, ChunkFailure::Unreadable)),
        ..Tally::new(None).unwrap()
    };
    for (first, second) in [(3, 8), (8, 3)] {
        let mut tally = failed(first);
        tally.join(failed(second));
        assert_eq!(tally.failure, Some((3, ChunkFailure::Unreadable)));
        tally.join(Tally::new(None).unwrap());
        assert!(tally.failure.is_some());
    }
}

#[test]
fn a_counter_that_is_dropped_ends_its_threads() {
    let file = temporary_file("dropped", &[b'a'; 100]);
    let rules = CountingRules::new(Arc::new(Pattern::Named(Scanner::Gpt2)), &[]).expect("none");
    let mut counter = Counter::new(rules, 3, None).unwrap();
    for _ in 0..50 {
        let file = Arc::clone(&file);
        assert!(counter.submit(Chunk {
            file,
            start: 0,
            end: 100
        }));
    }
    drop(counter);
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn numbers_of_all_sizes_are_packed() {
    let mut words = CountedWords::default();
    let counts: Vec<u64> = (0..64)
        .flat_map(|bit| [1 << bit, (1 << bit) + 1, u64::MAX >> bit])
        .collect();
    for &count in &counts {
        words.push(b"w", count).unwrap();
    }
    assert_eq!(
        words.iter().map(|(_, count)| count).collect::<Vec<_>>(),
        counts
    );
}
