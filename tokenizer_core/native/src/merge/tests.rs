use super::*;

fn bytes_as_ids() -> [u32; 256] {
    std::array::from_fn(|byte| byte as u32)
}

fn encode(merger: &Merger, piece: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    let take = |ids: &[u32]| found.extend(ids);
    merger
        .encode(piece, &mut MergeScratch::default(), take)
        .unwrap();
    assert_eq!(
        merge_at_once(merger, piece),
        found,
        "scan and long merge differ"
    );
    found
}

fn merge_at_once(merger: &Merger, piece: &[u8]) -> Vec<u32> {
    let start = |&byte: &u8| merger.start[byte as usize];
    let mut ids: Vec<u32> = piece.iter().map(start).collect();
    let mut long = LongMerge::default();
    merger.merge_long(&mut long, &mut ids, 1).unwrap();
    ids
}

fn bytes_by_id(merges: &[Merge]) -> Vec<Vec<u8>> {
    let mut by_product = merges.to_vec();
    by_product.sort_by_key(|&(left, right, product)| (product, left.max(right)));
    by_product.dedup_by_key(|merge| merge.2);
    let mut bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for (left, right, _) in by_product {
        bytes.push([&bytes[left as usize][..], &bytes[right as usize]].concat());
    }
    bytes
}

fn of_merges(merges: &[Merge]) -> Merger {
    let bytes = bytes_by_id(merges);
    let tokens: Vec<(&[u8], u32)> = bytes.iter().map(|token| &token[..]).zip(0..).collect();
    Merger::from_merges(bytes_as_ids(), merges, &tokens, false).unwrap()
}

/// Merges of every way to part each of some random strings of three letters, those of one string
/// next to each other, or in no order.
fn all_ways_to_part(seed: u64, is_in_order: bool) -> Vec<Merge> {
    let mut random = crate::random::below(seed);
    let mut strings: Vec<Vec<u8>> = b"abc".iter().map(|&byte| vec![byte]).collect();
    for _ in 0..60 {
        let parts = [random(strings.len()), random(strings.len())];
        let string = parts.map(|part| &strings[part][..]).concat();
        if string.len() < 12 && !strings.contains(&string) {
            strings.push(string);
        }
    }
    let id_of = |part: &[u8]| match part {
        [byte] => Some(u32::from(*byte)),
        _ => {
            let position = strings.iter().position(|string| string == part);
            position.map(|position| 253 + position as u32)
        }
    };
    let mut merges = Vec::new();
    for string in &strings[3..] {
        for position in 1..string.len() {
            let (left, right) = string.split_at(position);
            if let (Some(left), Some(right)) = (id_of(left), id_of(right)) {
                merges.push((left, right, id_of(string).expect("one of them")));
            }
        }
    }
    if !is_in_order {
        for position in (1..merges.len()).rev() {
            merges.swap(position, random(position + 1));
        }
    }
    merges
}

#[test]
fn pairs_that_merging_never_comes_to_are_left_out_and_change_nothing() {
    let (mut n_left_out, mut n_ranked_by_id) = (0, 0);
    for seed in 0..200 {
        let merges = all_ways_to_part(seed, seed % 2 == 0);
        let bytes = bytes_by_id(&merges);
        let known: Vec<(&[u8], u32)> = bytes.iter().map(|token| &token[..]).zip(0..).collect();
        let merger = Merger::from_merges(bytes_as_ids(), &merges, &known, false).unwrap();
        let all = Merger::of_all(bytes_as_ids(), &merges);
        n_left_out += all.pairs().count() - merger.pairs().count();
        n_ranked_by_id += usize::from(merger.pairs.n_ranks() == bytes.len());
        let mut random = crate::random::below(seed);
        for length in 1..120 {
            let piece: Vec<u8> = (0..length).map(|_| b"abc"[random(3)]).collect();
            assert_eq!(encode(&merger, &piece), encode(&all, &piece), "{seed}");
        }
        for (token, id) in known {
            assert_eq!(merger.makes(id), encode(&all, token) == [id], "{seed}");
        }
    }
    assert!(n_left_out > 2_000, "{n_left_out}");
    assert!((60..=100).contains(&n_ranked_by_id), "{n_ranked_by_id}");
}

#[test]
fn a_token_is_made_where_merging_its_bytes_comes_to_its_id() {
    // Of all strings of three letters every fourth, twice, at ranks in no order of length.
    let strings = (1..6u32).flat_map(|length| {
        (0..3u32.pow(length)).map(move |n| {
            let letter = |position| b"abc"[(n / 3u32.pow(position) % 3) as usize];
            (0..length).map(letter).collect::<Vec<u8>>()
        })
    });
    let longer: Vec<Vec<u8>> = strings.filter(|s| s.len() > 1).step_by(4).collect();
    let singles: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut tokens: Vec<(&[u8], u32)> = singles.iter().map(|t| &t[..]).zip(0..).collect();
    let n = longer.len() as u32;
    let string = |i: u32| &longer[(i * 7 % n) as usize][..];
    tokens.extend((0..2 * n).map(|i| (string(i), 256 + i)));
    let merger = Merger::from_ranks(bytes_as_ids(), &tokens);
    let mut n_made = 0;
    for &(token, id) in &tokens {
        let is_made = merger.makes(id);
        assert_eq!(is_made, encode(&merger, token) == [id], "{token:?}");
        n_made += usize::from(is_made);
    }
    // Some are, besides the bytes, and many are not.
    assert!((260..300).contains(&n_made), "{n_made}");
}

#[test]
fn the_last_byte_of_a_word_starts_as_its_end_in_windows_too() {
    // 256 to 511 are the bytes at an end: `ab` joins inside, `ab` at an end with another id.
    let merges = [(97, 98, 512), (97, 256 + 98, 513), (512, 513, 514)];
    let ends: Vec<(u8, u32)> = (0..=255)
        .map(|byte| (byte, 256 + u32::from(byte)))
        .collect();
    let merger = Merger::with_word_ends(bytes_as_ids(), &merges, &ends, 600).unwrap();
    for (piece, expected) in [
        (&b"b\xff"[..], &[256 + 98][..]),
        (b"b", &[98]),
        (b"abab\xff", &[514]),
        (b"abab", &[512, 512]),
        (b"abba\xff", &[512, 98, 256 + 97]),
    ] {
        assert_eq!(encode(&merger, piece), expected);
    }
    for n_pairs in [4, 20, 40, WINDOW / 2, WINDOW] {
        let piece = [b"ab".repeat(n_pairs), vec![END_OF_WORD]].concat();
        let (mut ids, scratch) = (Vec::new(), &mut MergeScratch::default());
        let n_bytes = |id| if id == 514 { 5 } else { 2 };
        let check = || Ok::<_, NoMemory>(());
        merger
            .encode_long(&piece, scratch, n_bytes, check, &mut ids)
            .unwrap();
        let expected = [vec![512; n_pairs - 2], vec![514]].concat();
        assert!(
            ids == expected && encode(&merger, &piece) == expected,
            "{n_pairs}"
        );
    }
}

/// The ids in windows of a given size, and how many windows were merged.
fn encode_in_windows(
    merger: &Merger,
    tokens: &[Vec<u8>],
    piece: &[u8],
    size: usize,
) -> (Vec<u32>, usize) {
    let (mut ids, mut n_windows) = (Vec::new(), 0);
    let merge = |part: &[u8], ids: &mut Vec<u32>| {
        n_windows += 1;
        *ids = merge_at_once(merger, part);
        Ok::<_, NoMemory>(())
    };
    let n_bytes = |id: u32| tokens[id as usize].len();
    windows::encode(piece, size, &mut ids, &mut Vec::new(), merge, n_bytes).unwrap();
    (ids, n_windows)
}

#[test]
fn windows_of_any_size_give_the_ids_of_the_whole_whatever_the_ranks() {
    let (mut n_enlarged, mut n_joined) = (0, 0);
    for seed in 0..300 {
        let merges = all_ways_to_part(seed, seed % 2 == 0);
        let tokens = bytes_by_id(&merges);
        let merger = Merger::of_all(bytes_as_ids(), &merges);
        let mut random = crate::random::below(seed);
        for round in 0..20 {
            // Of random letters, of one, and of a period.
            let period: Vec<u8> = (0..1 + random(9)).map(|_| b"abc"[random(3)]).collect();
            let piece: Vec<u8> = (0..1 + random(400))
                .map(|i| match round % 2 {
                    0 => b"abc"[random(3)],
                    _ => period[i % period.len()],
                })
                .collect();
            let expected = merge_at_once(&merger, &piece);
            for size in [1, 2, 3, 7, 16, 40, 100] {
                let (ids, n_windows) = encode_in_windows(&merger, &tokens, &piece, size);
                assert_eq!(ids, expected, "{seed} {size}");
                n_joined += usize::from(n_windows > 1 && size == 100);
                n_enlarged += usize::from(n_windows > 2 && size < 4);
            }
        }
    }
    assert!(
        n_joined > 3000 && n_enlarged > 3000,
        "{n_joined} {n_enlarged}"
    );
}

#[test]
fn a_window_is_enlarged_until_no_token_of_its_part_changes() {
    // Each `b` joins the one after it, from the last: one token is as long as the piece.
    let merges: Vec<Merge> = (0..40)
        .map(|n| (98, if n == 0 { 99 } else { 255 + n }, 256 + n))
        .collect();
    let (merger, tokens) = (of_merges(&merges), bytes_by_id(&merges));
    let piece = [&[98; 40][..], b"c"].concat();
    let (ids, n_windows) = encode_in_windows(&merger, &tokens, &piece, 4);
    assert_eq!((ids, n_windows > 4), (vec![295], true));
}

#[test]
fn windows_end_between_characters() {
    let piece = "a\u{e9}\u{4e2d}\u{1f642}\u{301}".repeat(50).into_bytes();
    for size in 1..40 {
        let mut ids = Vec::new();
        let merge = |part: &[u8], ids: &mut Vec<u32>| {
            assert!(std::str::from_utf8(part).is_ok());
            *ids = part.iter().map(|&byte| u32::from(byte)).collect();
            Ok::<_, NoMemory>(())
        };
        windows::encode(&piece, size, &mut ids, &mut Vec::new(), merge, |_| 1).unwrap();
        assert!(ids.iter().map(|&id| id as u8).eq(piece.iter().copied()));
    }
}
