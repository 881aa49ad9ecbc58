#!/bin/sh
# One would expect: chat-prompts, the prompt templates of LlamaEdge, writes Qwen 3's prompt without thinking as Qwen's
# own template does with `enable_thinking=False`: the model sees `<think>`, two line breaks, `</think>` and two line
# breaks.
# What happens: chat-prompts 0.35.3 writes `<think>/n/n</think>`, with slashes and the letter n, and nothing after it.
# In the instructions for tools a line break is a backslash and an n, because they stand in a raw string. No error.
# Source of the expectation: Qwen 3's template, here from TRL's wheel; the prompt string of `qwen3-no-think` in the
# README of chat-prompts, which has line breaks.
# Needs cargo. chat-prompts 0.35.3, trl 1.16.0, jinja2 3.1.6, 2026-11-30
set -eu
command -v cargo > /dev/null || { echo "skipped: cargo is not installed"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps trl==1.16.0 jinja2==3.1.6 markupsafe==3.0.3
mkdir "$work/src"
cd "$work"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
edition = "2021"

[dependencies]
chat-prompts = "=0.35.3"
endpoints = "=0.38.0"
serde_json = "1"
TOML
cat > src/main.rs <<'RUST'
use chat_prompts::{chat::Qwen3NoThinkPrompt, BuildChatPrompt};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut messages = serde_json::from_str(&arguments[1]).unwrap();
    let tools: Vec<endpoints::chat::Tool> = serde_json::from_str(&arguments[2]).unwrap();
    print!("{}", Qwen3NoThinkPrompt.build_with_tools(&mut messages, Some(&tools)).unwrap());
}
RUST
CARGO_TARGET_DIR="$work/target" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 cargo build --quiet
"$work/venv/bin/python" - <<'PYTHON'
import json
import subprocess
from importlib.metadata import distribution
from pathlib import Path

from jinja2 import Environment

template = Path(str(distribution("trl").locate_file("trl/chat_templates/qwen3.jinja"))).read_text()
environment = Environment(trim_blocks=True, lstrip_blocks=True)
environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
function = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
tools = [{"type": "function", "function": function}]
expected = environment.from_string(template).render(
    messages=messages, tools=tools, add_generation_prompt=True, enable_thinking=False
)
prompt = subprocess.check_output(["target/debug/finding", json.dumps(messages), json.dumps(tools)], text=True)
print("Qwen 3:", repr(expected[-160:]))
print("chat-prompts 0.35.3:", repr(prompt[-160:]))
assert expected.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
assert prompt.endswith("<|im_start|>assistant\n<think>/n/n</think>"), "the behaviour changed"
assert "XML tags:\n<tool_call>\n" in expected and r"XML tags:\n<tool_call>\n" in prompt, "the behaviour changed"
PYTHON
