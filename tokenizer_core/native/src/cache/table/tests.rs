use super::*;

fn entry<const WORDS: usize>(number: u64) -> ([u64; WORDS], [u64; WORDS]) {
    let key = std::array::from_fn(|word| (number * 7 + word as u64) | NARROW);
    let value = std::array::from_fn(|word| number.wrapping_mul(0x9E37_79B9) + word as u64);
    (key, value)
}

fn line_of<const WORDS: usize>(key: &[u64; WORDS]) -> usize {
    (key[0] as usize).wrapping_mul(0x9E37_79B9) >> 5
}

/// What several threads enter at once is found by all as it was entered, or refused.
fn fill<const WORDS: usize>() {
    let table = WriteOnceTable::<WORDS>::new(8).unwrap();
    let n = 400;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..20 {
                    for i in 0..n {
                        let (key, value) = entry::<WORDS>(1 + (i * 37 + thread * 101) % n);
                        let line = line_of(&key) % 256;
                        let found = table.get(line, &key);
                        assert!(found.is_none_or(|found| found == value));
                        if found.is_none() && round % 2 == 0 {
                            table.put(line, &key, &value);
                        }
                    }
                }
            });
        }
    });
    let stands = |table: &WriteOnceTable<WORDS>, mask: usize, number: u64| {
        let (key, value) = entry::<WORDS>(number);
        let line = line_of(&key) & mask;
        let found = table.get(line, &key);
        found.inspect(|found| assert_eq!(*found, value)).is_some()
    };
    let n_found = (1..=n).filter(|&i| stands(&table, 255, i)).count();
    let n_slots = 256 * WriteOnceTable::<WORDS>::SLOTS_PER_LINE;
    assert!(n_found > n_slots / 2 && n_found <= n as usize, "{n_found}");
    assert!(WORDS == 2 || table.is_full());
    // Of the smaller ones all fit, but for what two threads have entered twice: by one alone.
    let by_one = WriteOnceTable::<WORDS>::new(8).unwrap();
    for (key, value) in (1..=n).map(entry::<WORDS>) {
        let line = line_of(&key) % 256;
        by_one.put(line, &key, &value);
    }
    assert_eq!(by_one.is_full(), WORDS == 4);

    let larger = table.copied(10, |key| line_of(key) & 1023).unwrap();
    let n_copied = (1..=n).filter(|&i| stands(&larger, 1023, i)).count();
    assert!(n_copied >= n_found * 9 / 10 && n_copied <= n_found);
    // Two threads may have entered the same at the same time in two positions.
    assert!(larger.n_entries() >= n_copied && larger.n_entries() <= n_slots);
    assert!(!stands(&larger, 1023, n + 1));
}

#[test]
fn what_is_entered_is_found_whole_from_every_thread_and_in_a_copy() {
    fill::<2>();
    fill::<4>();
}

/// As `entry`, with a value that takes a line.
fn wide_entry(number: u64) -> ([u64; 2], [u64; 4]) {
    (entry::<2>(number).0, entry::<4>(number).1)
}

#[test]
fn wide_entries_are_found_whole_beside_others_and_in_a_copy() {
    let table = WriteOnceTable::<2>::new(8).unwrap();
    let n = 150;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for i in (0..20 * n).map(|i| 1 + (i * 37 + thread * 41) % n) {
                    if i % 3 == 0 {
                        let (key, value) = entry::<2>(i);
                        if table.get(line_of(&key) % 256, &key).is_none() {
                            table.put(line_of(&key) % 256, &key, &value);
                        }
                    } else {
                        let (key, value) = wide_entry(i);
                        let line = line_of(&key) % 256;
                        let found = table.lines[line].get_wide(&key);
                        assert!(found.is_none_or(|found| found == value));
                        if found.is_none() && table.put_wide(line, &key, &value) {
                            assert_eq!(table.lines[line].get_wide(&key), Some(value));
                        }
                    }
                }
            });
        }
    });
    let n_wide = |table: &WriteOnceTable<2>, mask: usize| {
        let mut n_found = 0;
        for i in 1..=n {
            let (key, value) = if i % 3 == 0 {
                let (key, value) = entry::<2>(i);
                assert_eq!(table.get(line_of(&key) & mask, &key), Some(value));
                continue;
            } else {
                wide_entry(i)
            };
            let line = line_of(&key) & mask;
            assert_eq!(table.get(line, &key), None, "found as one of a slot");
            if let Some(found) = table.lines[line].get_wide(&key) {
                assert_eq!(found, value);
                assert!(!table.lines[line].has_room::<2>());
                n_found += 1;
            }
        }
        n_found
    };
    let n_found = n_wide(&table, 255);
    assert!(n_found > n / 3, "{n_found}");
    let copy = table.copied(10, |key| line_of(key) & 1023).unwrap();
    assert!(n_wide(&copy, 1023) > n_found / 10 * 9);
}

#[test]
fn a_wide_entry_takes_no_line_of_which_a_slot_is_taken() {
    for taken in [1, 3] {
        let table = WriteOnceTable::<2>::new(2).unwrap();
        let (key, value) = wide_entry(8);
        table.lines[0].keys[taken].store(CLAIMED, Ordering::Relaxed);
        assert!(!table.put_wide(0, &key, &value));
        assert_eq!(table.lines[0].get_wide(&key), None);
        assert!(table.lines[0].has_room::<2>());
        let (key, value) = entry::<2>(9);
        assert!(table.put(0, &key, &value));
        assert_eq!(table.lines[0].get(&key), Some(value));
    }
}

#[test]
fn a_slot_that_is_being_written_is_neither_found_nor_copied() {
    let table = WriteOnceTable::<2>::new(2).unwrap();
    table.lines[0].keys[1].store(CLAIMED, Ordering::Relaxed);
    let key = [0, NARROW | 5];
    assert_eq!(table.get(0, &key), None);
    assert!(table.put(0, &key, &[1, 2]));
    assert_eq!(table.get(0, &key), Some([1, 2]));
    assert_eq!(table.copied(2, |_| 0).unwrap().n_entries(), 1);
}
