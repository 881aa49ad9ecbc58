#!/bin/sh
# One would expect: shimmytok reads the tokenizer of a GGUF file and gives ids of the whole text, those of llama.cpp.
# What happens: shimmytok 0.8.4 keeps only what the split pattern matches. With `tokenizer.ggml.pre` "gpt-2" (also OLMo,
# Phi-2, MPT, Jais) the pattern lacks its last alternative, `\s+`, so a line break or a tab in front of a letter has no
# id: lines are joined, and code loses its tabs. "viking" drops ". ,", and "kimi-k2", whose pattern is that for Chinese
# characters alone, drops every other character: an English text has no ids. No error.
# Source of the expectation: its README ("100% llama.cpp compatible", "producing identical output to llama.cpp", with
# gpt-2 in its table of exact matches); the comment on its splitter, that text between matches is preserved, which holds
# for vocabularies with several patterns only.
# Needs cargo. shimmytok 0.8.4, gguf 0.19.0, 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet gguf==0.19.0 tokenizers==0.23.3
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
shimmytok = { version = "=0.8.4", default-features = false }
TOML
cat > src/main.rs <<'RUST'
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let tokenizer = shimmytok::Tokenizer::from_gguf_file(&arguments[1]).unwrap();
    let ids = tokenizer.encode(&arguments[2], false).unwrap();
    print!("{}", tokenizer.decode(&ids, false).unwrap());
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" - <<'PYTHON'
import subprocess

from gguf import GGUFWriter
from tokenizers.pre_tokenizers import ByteLevel


def write(pre: str) -> None:
    """A vocabulary of the 256 bytes, as a GGUF file."""
    tokens = [*sorted(ByteLevel.alphabet()), "ab", "<|endoftext|>"]
    writer = GGUFWriter("vocabulary.gguf", "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


text = "One.\nTwo,\n\tthree\n"
decoded = {}
for pre in ("gpt-2", "viking", "kimi-k2", "llama-bpe", "smollm"):
    write(pre)
    decoded[pre] = subprocess.check_output(["target/debug/finding", "vocabulary.gguf", text], text=True)
    print("shimmytok 0.8.4,", pre, repr(decoded[pre]))
assert decoded == {
    "gpt-2": "One.Two,\nthree\n",
    "viking": "OneTwothree",
    "kimi-k2": "",
    "llama-bpe": text,
    "smollm": text,
}, "the behaviour changed"
PYTHON
