use super::*;

fn ids_of(piece: &[u8]) -> Vec<u32> {
    (0..1 + piece.len() % 13)
        .map(|i| piece[i % piece.len()] as u32 + i as u32 + (i as u32 % 2) * 0xFF_FF00)
        .map(|id| id & 0xF_FFFF)
        .collect()
}

#[test]
fn keys_tell_lengths_zero_bytes_and_what_stands_after_apart() {
    let text = b"abc\0\0 and so on, for more than thirty-two bytes, some of them after";
    assert!(Portable.key(text, 0, 3) != Portable.key(text, 0, 4));
    assert!(Portable.key(text, 3, 1) != Portable.key(text, 3, 2));
    assert!(Portable.key(text, 0, 3) == Portable.key(b"abc", 0, 3));
    assert!(Portable.key(text, 0, 15) == Portable.key(&text[..15], 0, 15));
    for length in 1..=MAX_MIDDLE_BYTES {
        let key = middle_key(text, 3, length);
        assert_eq!(key, middle_key(&text[3..3 + length], 0, length));
        let mut padded = [0; 32];
        padded[..length].copy_from_slice(&text[3..3 + length]);
        padded[31] = length as u8;
        let expected = padded.as_chunks::<8>().0.iter();
        assert!(expected.map(|word| u64::from_le_bytes(*word)).eq(key));
    }
}

#[test]
fn every_kernel_makes_the_same_keys() {
    struct KeyOf<'t>(&'t [u8], usize, usize);
    impl<K: Probe> Work<K> for KeyOf<'_> {
        type Output = u128;

        fn run(self, kernel: K) -> u128 {
            kernel.key(self.0, self.1, self.2)
        }
    }
    let text: Vec<u8> = (0..40).map(|i| (i * 37 % 256) as u8 | 1).collect();
    for kernel in Kernel::all() {
        for start in 0..text.len() {
            for length in 1..=MAX_SHORT_BYTES.min(text.len() - start) {
                let key = kernel.run(KeyOf(&text, start, length));
                assert_eq!(key, Portable.key(&text, start, length), "{}", kernel.name());
                let bytes = key.to_le_bytes();
                assert_eq!(bytes[..length], text[start..start + length]);
                assert!(bytes[length..15].iter().all(|&byte| byte == 0));
                assert_eq!(bytes[15], (length as u8).wrapping_neg());
            }
        }
    }
}

/// The ids of a piece, looked for as encoding does.
struct Get<'p>(&'p PieceCache, &'p [u8]);

impl<K: Probe> Work<K> for Get<'_> {
    type Output = Option<Vec<u32>>;

    fn run(self, kernel: K) -> Option<Vec<u32>> {
        let Get(cache, piece) = self;
        let (lookup, length) = (cache.lookup(), piece.len());
        let (key, line) = if length <= MAX_SHORT_BYTES {
            let key = kernel.key(piece, 0, length);
            let own = lookup.line_of(kernel, key);
            let slot = kernel.find(own, &key);
            let beyond = || lookup.find_beyond(kernel, &key, own);
            if let Some((line, slot)) = slot.map(|slot| (own, slot)).or_else(beyond) {
                let value = Value::read(line.words_in(slot));
                let ids: [u32; MAX_SHORT_BYTES] = value.unpacked();
                return Some(ids[..value.count()].to_vec());
            }
            if let Some(value) = own.get_wide(&words(key)) {
                return Some(MiddleValue::from_words(value).to_vec());
            }
            (key, own)
        } else {
            (lookup.key_of_longer(piece, 0, length), lookup.any_line())
        };
        let value = lookup.middle_value(piece, 0..length, key, line)?;
        Some(value.to_vec())
    }
}

/// Enters pieces, looks them up, and lets the cache grow, as encoding does.
#[test]
fn what_was_put_comes_back_or_is_missed_never_wrong() {
    for kernel in Kernel::all() {
        let seeds = [(&b"seed"[..], 7), (b"other seed", 8)];
        let mut cache = PieceCache::seeded(kernel, seeds.into_iter()).unwrap();
        let position = |cache: &PieceCache, piece: &[u8]| {
            // Of a longer piece any will do.
            let key = Portable.key(piece, 0, piece.len().min(MAX_SHORT_BYTES));
            let shift = 64 - cache.short.line_bits();
            (key, (hash(kernel, &cache.keys, key) >> shift) as usize)
        };
        let (mut n_grown, mut n_kept) = (0, 0);
        for round in 0..2 {
            let mut n_hits = 0;
            for i in 0u32..90_000 {
                let piece = format!("{i}-").repeat(1 + i as usize % 5).into_bytes();
                let (ids, is_short) = (ids_of(&piece), piece.len() <= MAX_SHORT_BYTES);
                if piece.len() > MAX_MIDDLE_BYTES {
                    continue;
                }
                let middle = middle_key(&piece, 0, piece.len());
                let middle_line = cache.middle_line(&middle);
                let found = kernel.run(Get(&cache, &piece));
                if let Some(found) = found {
                    assert_eq!(found, ids);
                    n_hits += 1;
                    continue;
                }
                let (key, line) = position(&cache, &piece);
                let is_kept = is_short && cache.put_short(key, line, &ids)
                    || cache.put_middle(&middle, middle_line, &ids);
                n_kept += u32::from(round == 0 && is_kept);
                assert!(is_kept || cache.may_be_long(middle_line));
                let found = kernel.run(Get(&cache, &piece));
                assert_eq!(found, is_kept.then_some(ids));
                if cache.is_full() {
                    n_grown += 1;
                    cache = cache.successor(kernel, seeds.into_iter()).unwrap();
                    assert_eq!(kernel.run(Get(&cache, b"seed")), Some(vec![7]));
                }
            }
            assert!(
                round == 0 || n_hits > n_kept / 10 * 9,
                "{n_hits} of {n_kept}"
            );
        }
        assert!(n_grown >= 2 && n_kept > 50_000);
    }
}

#[test]
fn at_its_greatest_size_a_full_table_is_followed_by_an_empty_one() {
    let table = Arc::new(WriteOnceTable::<4>::new(4).unwrap());
    for i in 1..200u64 {
        table.put((i % 16) as usize, &[i, 0, 0, 1], &[i; 4]);
    }
    let hash = |key: &[u64; 4]| key[0] << 60;
    assert!(table.is_full());
    assert_eq!(grown(&table, 4, hash).unwrap().n_entries(), 0);
    assert_eq!(grown(&table, 5, hash).unwrap().n_entries(), 16);
    assert!(!grown(&table, 5, hash).unwrap().is_full());
}

/// A number of seeds that is no whole number of groups, one that is, and the most there may be.
#[test]
fn every_seed_is_found_and_a_new_cache_has_room() {
    for n_seeds in [0, 31, 64, MAX_SEEDS] {
        let words: Vec<String> = (0..n_seeds).map(|i| format!("{i:x}")).collect();
        let seeds = words.iter().map(String::as_bytes).zip(0..n_seeds as u32);
        let kernel = Kernel::chosen();
        let cache = PieceCache::seeded(kernel, seeds).unwrap();
        let n_found = words.iter().zip(0..).filter(|(word, id)| {
            let found = kernel.run(Get(&cache, word.as_bytes()));
            assert!(found.is_none() || found == Some(vec![*id]));
            found.is_some()
        });
        // A seed is refused where four lines are full: at random, 1 to 8 in 1,000 of the most there may be.
        let n_found = n_found.count();
        assert!(n_found + n_seeds / 16 >= n_seeds, "{n_found} of {n_seeds}");
        assert!(cache.n_entries() == n_found && !cache.is_full());
        assert!(cache.short.n_entries() * 4 <= cache.short.lines().len() * 2);
    }
}
