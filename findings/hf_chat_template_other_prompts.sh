#!/bin/sh
# One would expect: hf-chat-template, a Rust crate, writes the prompt that transformers writes with a model's template.
# What happens: hf-chat-template 1.0.0 ignores all arguments of `tojson` but `indent`. Kimi K2's template writes its
# tools with `tojson(separators=(',', ':'))` and gets a space after each comma and colon. A number such as 1e-07 (the
# default of a parameter) becomes 1e-7, or 0.0000001 where a template writes it as text, as Gemma 4's does. And an
# object or a list that a template writes as text, as Llama 3's does with a tool's result that is an object, has double
# quotes, where Python's has single ones. So the ids are others, without an error.
# Source of the expectation: its README, "byte-for-byte identical to Python's `transformers.apply_chat_template`"; the
# limits in its COMPATIBILITY.md are others (the clock, undefined variables, missing methods, which are errors).
# Needs cargo. hf-chat-template 1.0.0, transformers 5.24.0, 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 jinja2==3.1.6
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
hf-chat-template = "=1.0.0"
serde_json = { version = "1", features = ["preserve_order"] }
TOML
cat > src/main.rs <<'RUST'
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let template = hf_chat_template::ChatTemplate::from_str(&arguments[1]).unwrap();
    let context: serde_json::Value = serde_json::from_str(&arguments[2]).unwrap();
    print!("{}", template.render_context(&context).unwrap());
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" 2> "$work/messages" - <<'PYTHON' || { cat "$work/messages"; exit 1; }
import json
import subprocess
from importlib.metadata import version

from transformers.utils.chat_template_utils import render_jinja_template

tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": {"default": 1e-07}}}}]
messages = [{"role": "tool", "content": {"found": True, "name": "it"}}]
cases = {
    "{{ messages | tojson(separators=(',', ':')) }}": '[{"role": "tool", "content": {"found": true, "name": "it"}}]',
    "{{ tools[0].function.parameters | tojson }}": '{"x": {"default": 1e-7}}',
    "{{ 'x:' ~ tools[0].function.parameters.x.default }}": "x:0.0000001",
    "{{ messages[0].content }}": '{"found": True, "name": "it"}',
}
print("transformers", version("transformers"), "hf-chat-template 1.0.0")
for template, expected in cases.items():
    [prompt], _ = render_jinja_template([messages], tools=tools, chat_template=template)
    context = json.dumps({"messages": messages, "tools": tools})
    other = subprocess.check_output(["target/debug/finding", template, context], text=True)
    print(f"{template}\n    transformers: {prompt}\n    hf-chat-template: {other}")
    assert other == expected != prompt, "the behaviour changed"
PYTHON
