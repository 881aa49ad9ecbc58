#!/bin/sh
# One would expect: the Markdown chunks of chunkedrs hold all of a document: its text in their contents, its headings in
# their `section_path`.
# What happens: chunkedrs 2.1.1 makes no chunk of a heading without text, so an empty section, or a heading at the end,
# is in no content and in no path. And it takes each line in front of `---` for a heading: the last item of a list, a
# quotation or the last line of a paragraph is missing from the contents, and what follows has it as its section. No
# error.
# Source of the expectation: its README, "header ancestry on every chunk", "Headers are ATX (`#`) or setext (`===` /
# `---` underline)"; CommonMark 0.31.2, section 4.3: the text of a setext heading is a whole paragraph, and "- Foo" or
# "> Foo" in front of "---" is a list or a quotation, and a rule.
# Needs cargo. chunkedrs 2.1.1, markdown-it-py 4.0.0 (reads CommonMark), 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet markdown-it-py==4.0.0
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
chunkedrs = "=2.1.1"
serde_json = "1"
TOML
cat > src/main.rs <<'RUST'
fn main() {
    let text = std::env::args().nth(1).unwrap();
    let chunks = chunkedrs::chunk(&text).markdown().split();
    let parts: Vec<_> = chunks.iter().map(|chunk| (&chunk.section_path, &chunk.content)).collect();
    print!("{}", serde_json::to_string(&parts).unwrap());
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" - <<'PYTHON'
import json
import subprocess

from markdown_it import MarkdownIt

document = "# Guide\n\nIntro.\n\n## To do\n\n## Usage\n\n- one\n- two\n---\nRest.\n\n## Questions?\n"
chunks = json.loads(subprocess.check_output(["target/debug/finding", document]))
print("chunkedrs 2.1.1")
for path, content in chunks:
    print("   ", path, repr(content))
html = MarkdownIt("commonmark").render(document)
print(html)
assert "<li>two</li>" in html and "<h2>To do</h2>" in html and "<h2>Questions?</h2>" in html
assert chunks == [
    [["# Guide"], "\nIntro.\n\n"],
    [["# Guide", "## Usage"], "\n- one\n"],
    [["# Guide", "- two"], "Rest.\n\n"],
], "the behaviour changed"
PYTHON
