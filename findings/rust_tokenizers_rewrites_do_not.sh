#!/bin/sh
# One would expect: rust_tokenizers, the tokenizers of rust-bert, decodes the ids of a text to the text.
# What happens: with `clean_up_tokenization_spaces`, rust_tokenizers 8.1.1 puts "don't" for each " do not": a quotation,
# a contract or a program says what the model did not write. And without it, a space in front of a special token has no
# id at all: "Hi <|endoftext|>" has the ids of "Hi<|endoftext|>". No error in either case.
# Source of the expectation: its README, "a drop-in replacement for the tokenization methods from the Transformers
# library"; `clean_up_tokenization` of transformers 5.24.0 removes spaces in front of punctuation and contractions, and
# changes no word; tokenizers 0.23.3 with the same files.
# Needs cargo. rust_tokenizers 8.1.1, tokenizers 0.23.3, 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet tokenizers==0.23.3
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
rust_tokenizers = "=8.1.1"
TOML
cat > src/main.rs <<'RUST'
use rust_tokenizers::tokenizer::{Gpt2Tokenizer, Tokenizer};

fn main() {
    let text = std::env::args().nth(1).unwrap();
    let tokenizer = Gpt2Tokenizer::from_file("vocab.json", "merges.txt", false).unwrap();
    let ids = tokenizer.convert_tokens_to_ids(&tokenizer.tokenize(&text));
    print!("{}\n{}", tokenizer.decode(&ids, false, false), tokenizer.decode(&ids, false, true));
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" - <<'PYTHON'
import subprocess
from importlib.metadata import version

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocabulary = {token: id_ for id_, token in enumerate([*letters, "do", "<|endoftext|>"])}
tokenizer = Tokenizer(models.BPE(vocabulary, [("d", "o")]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<|endoftext|>"])
tokenizer.model.save(".")
print("tokenizers", version("tokenizers"), "rust_tokenizers 8.1.1")
decoded = []
for text in ("You do not own it.", "Hi <|endoftext|>"):
    plain, cleaned = subprocess.check_output(["target/debug/finding", text], text=True).split("\n")
    same = tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)
    print(f"{text!r}: tokenizers {same!r}, rust_tokenizers {plain!r}, cleaned up {cleaned!r}")
    assert same == text
    decoded.append((plain, cleaned))
assert decoded == [
    ("You do not own it.", "You don't own it."),
    ("Hi<|endoftext|>", "Hi<|endoftext|>"),
], "the behaviour changed"
PYTHON
