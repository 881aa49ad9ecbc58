#!/bin/sh
# One would expect: AutoTokenizer follows `add_bos_token: true` of tokenizer_config.json, a setting that the class
# LlamaTokenizerFast of the folder documents ("Whether or not to add an bos_token at the start of sequences").
# What happens: transformers 5.24.0 removes the setting when the folder has a tokenizer.json, and adds no token.
# transformers 4.57.6 adds it. DeepSeek-V3's folder has this form.
# Source of the expectation: the docstring of that class, and transformers 4.57.6 on the same folder.
# 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for release in 4.57.6 5.24.0; do
    python3 -m venv "$work/$release"
done
"$work/4.57.6/bin/pip" install --quiet transformers==4.57.6 tokenizers==0.22.2
"$work/5.24.0/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$work"
cat > folder.py <<'PYTHON'
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<unk>")])
Path("model").mkdir()
tokenizer.save("model/tokenizer.json")
config = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "add_bos_token": True}
Path("model/tokenizer_config.json").write_text(json.dumps(config))
Path("model/config.json").write_text('{"model_type": "deepseek_v3"}')
PYTHON
5.24.0/bin/python folder.py
cat > ids.py <<'PYTHON'
import transformers

ids = transformers.AutoTokenizer.from_pretrained("model")("ab").input_ids
print("transformers", transformers.__version__, ids)
expected = {"4.57.6": [2, 0, 1], "5.24.0": [0, 1]}
assert ids == expected[transformers.__version__], "the behaviour changed"
PYTHON
for release in 4.57.6 5.24.0; do
    TRANSFORMERS_VERBOSITY=critical "$release/bin/python" ids.py
done
