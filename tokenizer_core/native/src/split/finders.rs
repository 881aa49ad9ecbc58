//! What finds the pieces of a text, for each pattern.

use crate::merge::boundaries::Boundaries;
use crate::simd::Kernel;
use crate::split::automaton::{Automaton, Rules, reads_for};
use crate::split::blocks::ends::BlockPieces;
use crate::split::blocks::ruled::{
    DeepSeekV3, DigitRuns, Digits, KimiK2, Metaspace, Qwen35, Rule, Ruled, Tekken,
};
use crate::split::blocks::starts::BlockGrammar;
use crate::split::pieces::{Cutting, END, FindPieces, Found};
use crate::split::pre_tokens::{PiecesOf, PreTokens};
use crate::split::{Cl100k, Gpt2, Llama3, O200k, Qwen2, Scanner};
use crate::stop::Stopped;

/// Runs `work` with what finds the pieces of a text.
pub fn with_finder<T>(
    scanner: Scanner,
    text: &str,
    cutting: Cutting,
    work: impl FnOnce(&mut dyn FindPieces) -> T,
) -> T {
    let (bytes, mark) = (text.as_bytes(), cutting.mark);
    match scanner {
        Scanner::Automaton(automaton) if !automaton.is_plain() || mark.is_some() => {
            let mut pieces = automaton.pieces(text);
            let find = |found: &mut PreTokens| {
                while !found.is_full()
                    && let Some(piece) = pieces.next_piece()?
                {
                    found.push(piece)?;
                }
                Ok(())
            };
            with_pre_tokens(find, (bytes, automaton.drops()), cutting, work)
        }
        _ if mark.is_some() => {
            let mut at = 0;
            let find = |found: &mut PreTokens| {
                while !found.is_full() && at < bytes.len() {
                    let start = at;
                    at = scanner.advance(bytes, start);
                    found.push(start..at)?;
                }
                Ok(())
            };
            with_pre_tokens(find, (bytes, false), cutting, work)
        }
        Scanner::Gpt2 => work(&mut in_blocks(Gpt2, bytes, cutting)),
        Scanner::Cl100k => work(&mut in_blocks(Cl100k, bytes, cutting)),
        Scanner::Llama3 => work(&mut in_blocks(Llama3, bytes, cutting)),
        Scanner::Qwen2 => work(&mut in_blocks(Qwen2, bytes, cutting)),
        Scanner::O200k => work(&mut in_blocks(O200k, bytes, cutting)),
        Scanner::Automaton(automaton) => match automaton.rules() {
            Some(Rules::Metaspace) => work(&mut ruled(automaton, Metaspace, bytes, cutting)),
            Some(Rules::Digits) => work(&mut ruled(automaton, Digits, bytes, cutting)),
            Some(Rules::DigitRuns) => work(&mut ruled(automaton, DigitRuns, bytes, cutting)),
            Some(Rules::Qwen35) => work(&mut ruled(automaton, Qwen35, bytes, cutting)),
            Some(Rules::Tekken) => work(&mut ruled(automaton, Tekken, bytes, cutting)),
            Some(Rules::KimiK2) => work(&mut ruled(automaton, KimiK2, bytes, cutting)),
            Some(Rules::DeepSeekV3) => work(&mut ruled(automaton, DeepSeekV3, bytes, cutting)),
            None => {
                let mut reads_left = reads_for(bytes.len());
                let find = |found: &mut PreTokens| {
                    automaton.find_pre_tokens(bytes, found, &mut reads_left)
                };
                with_pre_tokens(find, (bytes, false), cutting, work)
            }
        },
    }
}

/// Runs `work` with the pieces of what `find` finds in a text, some of which it may drop. Not inlined:
/// short texts that are split in blocks would pay for this memory.
#[inline(never)]
fn with_pre_tokens<T>(
    find: impl FnMut(&mut PreTokens) -> Result<(), Stopped>,
    (text, drops): (&[u8], bool),
    cutting: Cutting,
    work: impl FnOnce(&mut dyn FindPieces) -> T,
) -> T {
    work(&mut PiecesOf {
        find,
        pre_tokens: PreTokens::of(text, drops, cutting.mark),
        cutting,
        n_given: 0,
    })
}

fn in_blocks<'a, G: BlockGrammar>(
    grammar: G,
    text: &'a [u8],
    cutting: Cutting<'a>,
) -> BlockPieces<'a, G> {
    BlockPieces {
        grammar,
        cutting,
        text,
        at: 0,
    }
}

fn ruled<'a, R: Rule>(
    automaton: &'a Automaton,
    rule: R,
    text: &'a [u8],
    cutting: Cutting<'a>,
) -> BlockPieces<'a, Ruled<'a, R>> {
    in_blocks(Ruled { automaton, rule }, text, cutting)
}

/// As `Scanner::for_each`, in blocks where the pattern has rules for them.
pub fn for_each<'t>(
    scanner: Scanner,
    text: &'t str,
    mut visit: impl FnMut(&'t [u8]),
) -> Result<(), Stopped> {
    if let Scanner::Automaton(automaton) = scanner
        && automaton.drops()
    {
        return scanner.for_each(text, visit);
    }
    let (bytes, boundaries) = (text.as_bytes(), Boundaries::none());
    let cutting = Cutting {
        kernel: Kernel::chosen(),
        boundaries: &boundaries,
        marks_parts: false,
        mark: None,
    };
    with_finder(scanner, text, cutting, |finder| {
        let (mut ends, mut at) = ([0; _], 0);
        while let Some(found) = finder.next_batch(&mut ends)? {
            let (start, n) = match found {
                Found::Batch { start, n, .. } => (start, n),
                Found::Long { piece, .. } => {
                    visit(&bytes[piece.clone()]);
                    at = piece.end;
                    continue;
                }
            };
            for &end in &ends[..n] {
                let end = start + (end & END) as usize;
                visit(&bytes[at..end]);
                at = end;
            }
        }
        Ok(())
    })
}
