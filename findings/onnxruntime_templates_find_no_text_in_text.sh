#!/bin/sh
# One would expect: onnxruntime-extensions, which has the tokenizer of onnxruntime-genai, renders the chat template of a
# model folder as Jinja does.
# What happens: in its templates `'b' in 'abc'` is false, without an error. Qwen 3's and DeepSeek V3's templates ask
# `'</think>' in content` to leave out the reasoning of earlier turns, so the prompt keeps it. It also writes other
# tools than those it gets: without `type`, and with an empty `description`.
# Source of the expectation: Jinja's documentation of `in`; the text that transformers renders with the same template.
# onnxruntime-extensions 0.15.2; onnxruntime-genai 0.18.0 does the same, with tools in a loop. 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet onnxruntime-extensions==0.15.2 tokenizers==0.23.3 jinja2==3.1.6
mkdir "$work/folder"
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment
from onnxruntime_extensions.pp_api import Tokenizer as OrtTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({character: id_ for id_, character in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.save("folder/tokenizer.json")
Path("folder/tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
other = OrtTokenizer("folder")
messages = [{"role": "assistant", "content": "<think>It is easy.</think>Yes"}]
tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
environment = Environment()
environment.filters["tojson"] = json.dumps
for name in ("onnxruntime-extensions", "jinja2"):
    print(name, version(name))
found = []
for template in (
    "{{ 'b' in 'abc' }}",
    "{% set text = messages[0].content %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}{{ text }}",
    "{{ messages[0].content.split('</think>')[-1] }}",
    "{{ tools | tojson }}",
):
    expected = environment.from_string(template).render(messages=messages, tools=tools)
    got = other.apply_chat_template(json.dumps(messages), template, json.dumps(tools), False)
    found.append(got == expected)
    print("Jinja:", expected, "\n onnxruntime-extensions:", got)
assert found == [False, False, True, False], "the behaviour changed"
PYTHON
