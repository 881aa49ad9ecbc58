#!/bin/sh
# One would expect: onnxruntime-extensions reads a model folder and gives the ids of Hugging Face tokenizers for every
# text, or at least ids of the whole text.
# What happens: if a text ends soon after the first characters of an added token, onnxruntime-extensions 0.15.2, the
# newest release, drops what follows them, without an error. With <|endoftext|> (GPT-2, Qwen, Llama 3 have such
# tokens) "I <3" has the ids of "I <". With tokens of runs of spaces (Phi-2, GPT-NeoX) "Plan b" has those of "Plan ".
# Source of the expectation: the ids of tokenizers for the same file; pull request 1067 of the library's repository
# calls it a loss of trailing characters. onnxruntime-genai 0.18.0, which builds a newer copy, keeps them.
# 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet onnxruntime-extensions==0.15.2 tokenizers==0.23.3
mkdir "$work/folder"
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from onnxruntime_extensions.pp_api import Tokenizer as OrtTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({character: id_ for id_, character in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<|endoftext|>"])
tokenizer.add_tokens([AddedToken("  ", normalized=False)])
tokenizer.save("folder/tokenizer.json")
settings = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
Path("folder/tokenizer_config.json").write_text(json.dumps(settings))
other = OrtTokenizer("folder")
for name in ("onnxruntime-extensions", "tokenizers"):
    print(name, version(name))
found = []
for text in ("I <34", "I <3", "Plan bc", "Plan b"):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    ids = [int(id_) for id_ in other.tokenize(text)]
    found.append(tokenizer.decode(ids))
    print(repr(text), "tokenizers", tokenizer.encode(text).ids, "onnxruntime-extensions", ids, repr(found[-1]))
assert found == ["I <34", "I <", "Plan bc", "Plan "], "the behaviour changed"
PYTHON
