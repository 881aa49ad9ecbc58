#!/bin/sh
# One would expect: `dashscope.get_tokenizer("qwen3-max")` gives the ids of Qwen 3, or refuses the model; and the ids of a
# long text do not depend on where the library cuts it.
# What happens: dashscope 2.0.2, Alibaba's client, takes the first Qwen's tokenizer for every model whose name begins with
# "qwen". It has no `<think>`, `<tool_call>` and `<tool_response>`, one token each in Qwen 3: each is three or more, so
# counts of conversations with reasoning or tools are too high. And it cuts a text of more than 100,000 characters in
# front of a line break: ";" and "\n", one token everywhere else, are two there.
# Source of the expectation: its docstring ("Get a tokenizer based on model name", UnsupportedModel otherwise), the
# comment "Split text into chunks at safe tokenization boundaries"; the first Qwen and Qwen 3 differ in these tokens
# (added_tokens of Qwen 3's tokenizer.json: 151657 `<tool_call>`, 151667 `<think>`).
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet dashscope==2.0.2 tiktoken==0.14.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import dashscope

print("dashscope", version("dashscope"))
tokenizer = dashscope.get_tokenizer("qwen3-max")
tokens = {token: tokenizer.encode(token) for token in ("<|im_start|>", "<think>", "<tool_call>", "<tool_response>")}
print(tokens)
assert tokens["<|im_start|>"] == [151644]
assert {len(tokens[token]) for token in tokens if token != "<|im_start|>"} == {3, 4}, "the behaviour changed"

line = "x = f(a);\n"
per_line = len(tokenizer.encode(line))
counts = {n_lines: len(tokenizer.encode(line * n_lines)) for n_lines in (10, 10_000, 10_001, 30_000)}
print("tokens a line", per_line, "tokens of n lines", counts)
expected = {10: 0, 10_000: 0, 10_001: 1, 30_000: 3}
assert {n: count - n * per_line for n, count in counts.items()} == expected, "the behaviour changed"
PYTHON
