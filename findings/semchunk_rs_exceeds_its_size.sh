#!/bin/sh
# One would expect: with a chunk size of 3, no chunk of semchunk-rs has more than 3 tokens.
# What happens: semchunk-rs 0.1.1 puts one part too many into a chunk whose count does not reach the size exactly: of
# words of two tokens it takes two, which are 4. An embedder cuts off what is over. No error.
# Source of the expectation: its documentation, "chunk_size - The maximum number of tokens that can be in a chunk", and
# "A port of umarbutler/semchunk": semchunk 3.2.5 with the same counter and text.
# Needs cargo. semchunk-rs 0.1.1, semchunk 3.2.5, 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet semchunk==3.2.5
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
semchunk-rs = "=0.1.1"
TOML
cat > src/main.rs <<'RUST'
fn main() {
    // Each word is two tokens.
    let count = |text: &str| 2 * text.split_whitespace().count();
    for chunk in semchunk_rs::Chunker::new(3, Box::new(count)).chunk("one two three four five") {
        println!("{chunk}");
    }
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" - <<'PYTHON'
import subprocess
from importlib.metadata import version

from semchunk import chunkerify

python = chunkerify(lambda text: 2 * len(text.split()), 3)("one two three four five")
rust = subprocess.check_output(["target/debug/finding"], text=True).splitlines()
print("semchunk", version("semchunk"), python)
print("semchunk-rs 0.1.1", rust)
assert python == ["one", "two", "three", "four", "five"]
assert rust == ["one two", "three four", "five"], "the behaviour changed"
PYTHON
