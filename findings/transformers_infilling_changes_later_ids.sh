#!/bin/sh
# One would expect: a CodeLlamaTokenizer gives a text the same ids before and after it encoded a prompt with <FILL_ME>.
# The class resets its normalizer after such a prompt "to [its] normal behaviour".
# What happens: transformers 5.24.0 resets it to another normalizer than the tokenizer had: every later text that begins
# with a space gets one token more. So ids depend on what the object encoded before. transformers 4.57.6 does so, too.
# Source of the expectation: the docstring of set_infilling_processor in models/code_llama/tokenization_code_llama.py.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cat > "$work/ids.py" <<'PYTHON'
import transformers

marks = ["▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"]
tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", *marks]
vocab = {token: id_ for id_, token in enumerate(tokens)}
tokenizer = transformers.CodeLlamaTokenizer(vocab=vocab, merges=[("▁", "a")])
before = tokenizer(" a").input_ids
prompt = tokenizer("a<FILL_ME>b").input_ids
after = tokenizer(" a").input_ids
print("transformers", transformers.__version__, "' a' before:", before, "after an infilling prompt:", after)
assert vocab["▁<SUF>"] in prompt, "the behaviour changed"
assert (before, after) == ([1, 262], [1, 259, 262]), "the behaviour changed"
PYTHON
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" "$work/ids.py"
