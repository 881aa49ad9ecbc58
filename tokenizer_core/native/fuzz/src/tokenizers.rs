//! Tokenizers built twice: as the engine builds them, and as their definition.

use std::collections::HashMap;
use std::sync::OnceLock;

use tokenizer_native::decode::vocabulary::Vocabulary;
use tokenizer_native::encode::{Encoder, Start};
use tokenizer_native::split::Scanner;

use crate::definitions::{Definition, Rules};
use crate::inputs::{Choices, TRAPS};

pub type Merge = (Vec<u8>, Vec<u8>);

/// One tokenizer both ways.
pub struct Both {
    pub encoder: Encoder,
    pub definition: Definition,
}

/// The vocabulary of a tokenizer and, for kind `merges`, its list.
pub struct Spec {
    pub ids: HashMap<Vec<u8>, u32>,
    pub merges: Option<Vec<Merge>>,
    pub take_whole: bool,
}

impl Spec {
    /// On the kernel at this position, or the fastest where the processor has fewer.
    pub fn build(self, kernel: usize) -> Both {
        let known: Vec<(&[u8], u32)> = self.ids.iter().map(|(t, &id)| (&t[..], id)).collect();
        let vocabulary = || Vocabulary::new(known.iter().map(|&(t, id)| (id, t)).collect());
        let id = |parts: &[&[u8]]| self.ids[&parts.concat()];
        let merges: Option<Vec<_>> = self.merges.as_ref().map(|merges| {
            (merges.iter())
                .map(|(l, r)| (id(&[l]), id(&[r]), id(&[l, r])))
                .collect()
        });
        let build = || {
            Encoder::build(
                vocabulary(),
                &known,
                merges.as_deref(),
                self.take_whole,
                Start::default(),
            )
            .expect("a vocabulary")
        };
        let encoder = build().on_kernel(kernel).unwrap_or_else(build);
        let rules = match self.merges {
            None => Rules::Ranks,
            Some(merges) => Rules::Merges(merges.into_iter().zip(0..).collect()),
        };
        let definition = Definition {
            ids: self.ids,
            rules,
            take_whole: self.take_whole,
        };
        Both {
            encoder,
            definition,
        }
    }
}

/// What tiny vocabularies are made of: characters that share bytes, and some that do not.
pub const ALPHABETS: [&[&str]; 6] = [
    &["a", "b"],
    &["a", "b", "c"],
    &["中", "丮", "丯", "e"],
    &["д", "ѐ", "e", " "],
    &["🙂", "🙃", "中", " "],
    &["'", "s", "ſ", " ", "\n"],
];

/// A tiny vocabulary whose merges overlap, repeat and contradict each other; ids, which are the
/// ranks of kind `ranks`, in an order that `choices` make, with gaps.
pub fn tiny_spec(choices: &mut Choices<'_>, alphabet: &[&str]) -> Spec {
    let kind = choices.below(3);
    let (step, n_merges) = (choices.byte(), choices.below(48));
    let mut merges = if choices.byte() & 1 == 0 {
        merges_of_tokens(choices, alphabet, n_merges)
    } else {
        merges_of_words(choices, alphabet, n_merges / 4)
    };
    if choices.below(4) == 0 {
        merges.reverse();
    }
    let mut tokens: Vec<Vec<u8>> = Vec::new();
    for (left, right) in &merges {
        let product = [&left[..], right].concat();
        if !tokens.contains(&product) {
            tokens.push(product);
        }
    }
    // Tokens that no merge makes.
    for _ in 0..choices.below(4) {
        let n = 2 + choices.below(20);
        let token: Vec<u8> = (0..n).flat_map(|_| choices.of(alphabet).bytes()).collect();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    let mut all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    all.extend(tokens);
    // An odd factor modulo a power of two gives each position another id.
    let factor = usize::from(step) * 2 + 1;
    let ids = (all.into_iter().enumerate())
        .map(|(position, token)| (token, (position * factor % 2048) as u32))
        .collect();
    Spec {
        ids,
        merges: (kind != 2).then_some(merges),
        take_whole: kind != 0,
    }
}

/// Merges of any two tokens there are so far.
fn merges_of_tokens(choices: &mut Choices<'_>, alphabet: &[&str], n: usize) -> Vec<Merge> {
    let mut merges: Vec<Merge> = Vec::new();
    let mut tokens: Vec<Vec<u8>> = alphabet.concat().bytes().map(|byte| vec![byte]).collect();
    tokens.sort();
    tokens.dedup();
    for _ in 0..n {
        let left = tokens[choices.below(tokens.len())].clone();
        let right = tokens[choices.below(tokens.len())].clone();
        let product = [&left[..], &right].concat();
        let merge = (left, right);
        if product.len() > 24 || merges.contains(&merge) {
            continue;
        }
        merges.push(merge);
        if !tokens.contains(&product) {
            tokens.push(product);
        }
    }
    merges
}

/// Merges that put words of a few characters together, within characters and across them.
fn merges_of_words(choices: &mut Choices<'_>, alphabet: &[&str], n: usize) -> Vec<Merge> {
    let mut merges: Vec<Merge> = Vec::new();
    for _ in 0..n {
        let n_characters = 1 + choices.below(3);
        let word: String = (0..n_characters).map(|_| choices.of(alphabet)).collect();
        let mut parts: Vec<Vec<u8>> = word.bytes().map(|byte| vec![byte]).collect();
        for _ in 0..1 + choices.below(parts.len()) {
            if parts.len() == 1 {
                break;
            }
            // What merges already, or else any two.
            let known = (0..parts.len() - 1).find(|&at| {
                let pair = (&parts[at], &parts[at + 1]);
                merges.iter().any(|(l, r)| (l, r) == pair)
            });
            let at = known.unwrap_or_else(|| choices.below(parts.len() - 1));
            let right = parts.remove(at + 1);
            let merge = (parts[at].clone(), right);
            parts[at].extend_from_slice(&merge.1);
            if known.is_none() {
                merges.push(merge);
            }
        }
    }
    merges
}

/// A vocabulary of the traps themselves, so that most of them merge; `kind` as in `tiny_spec`.
fn spec_of_traps(kind: usize) -> Spec {
    let mut state = 7u64;
    let mut random = |end: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % end
    };
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut merges: Vec<Merge> = Vec::new();
    for round in 0..3 {
        for trap in TRAPS {
            let neighbour = TRAPS[random(TRAPS.len())];
            let whole = [*trap, if round == 2 { neighbour } else { "" }].concat();
            let mut parts: Vec<Vec<u8>> = whole.bytes().map(|byte| vec![byte]).collect();
            while parts.len() > 1 {
                let at = random(parts.len() - 1);
                let right = parts.remove(at + 1);
                let merge = (parts[at].clone(), right);
                let product = [&merge.0[..], &merge.1].concat();
                parts[at] = product.clone();
                if !merges.contains(&merge) {
                    merges.push(merge);
                }
                if !tokens.contains(&product) {
                    tokens.push(product);
                }
            }
        }
    }
    if kind == 2 {
        // Ranks that do not rise with length.
        for position in (257..tokens.len()).rev() {
            tokens.swap(position, 256 + random(position - 255));
        }
    }
    Spec {
        ids: tokens.into_iter().zip(0..).collect(),
        merges: (kind != 2).then_some(merges),
        take_whole: kind != 0,
    }
}

/// A rank file: base64 of a token, a space, its rank.
fn spec_of_rank_file(path: &std::path::Path) -> Option<Spec> {
    let content = std::fs::read_to_string(path).ok()?;
    let ids = content.lines().map(|line| {
        let (token, rank) = line.split_once(' ').expect("a token and its rank");
        (from_base64(token), rank.parse().expect("a rank"))
    });
    Some(Spec {
        ids: ids.collect(),
        merges: None,
        take_whole: true,
    })
}

fn from_base64(text: &str) -> Vec<u8> {
    let (mut bits, mut n_bits, mut bytes) = (0u32, 0, Vec::new());
    for character in text.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((bits >> n_bits) as u8);
        }
    }
    bytes
}

/// A scanner with a tokenizer that lives as long as the process, so that its caches fill.
pub struct Lasting {
    pub name: String,
    pub scanner: Scanner<'static>,
    pub both: &'static Both,
}

/// Every scanner with a vocabulary of each kind on each kernel, and the public rank files where
/// TOKENIZER_FUZZ_RANKS names the folder that holds them.
pub fn lasting() -> &'static [Lasting] {
    static ALL: OnceLock<Vec<Lasting>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        for (name, scanner) in Scanner::NAMES {
            for (kind, kernel) in (0..3).flat_map(|kind| (0..3).map(move |kernel| (kind, kernel))) {
                let both = spec_of_traps(kind).build(kernel);
                let both: &'static Both = Box::leak(Box::new(both));
                let name = format!("{name} kind {kind} kernel {kernel}");
                all.push(Lasting {
                    name,
                    scanner,
                    both,
                });
            }
        }
        let Some(folder) = std::env::var_os("TOKENIZER_FUZZ_RANKS") else {
            return all;
        };
        for (file, scanners) in [
            ("r50k_base", &["gpt2"][..]),
            ("cl100k_base", &["cl100k", "llama3", "qwen2"]),
            ("o200k_base", &["o200k"]),
        ] {
            let path = std::path::Path::new(&folder).join(format!("{file}.tiktoken"));
            let Some(spec) = spec_of_rank_file(&path) else {
                continue;
            };
            let both: &'static Both = Box::leak(Box::new(spec.build(0)));
            for name in scanners {
                let scanner = Scanner::from_name(name).expect("a scanner of that name");
                let name = format!("{name} of {file}");
                all.push(Lasting {
                    name,
                    scanner,
                    both,
                });
            }
        }
        all
    })
}
