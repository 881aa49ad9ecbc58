#!/bin/sh
# One would expect: gguf's SpecialVocab says that a model adds its begin token if its tokenizer.json does, in whichever
# of its two forms tokenizer_config.json writes that token.
# What happens: written as a string, add_bos_token is true; written as the object that older transformers saved, it is
# false. A GGUF file with that flag gives prompts without the begin token in llama.cpp; transformers adds it in both.
# Source of the expectation: gguf's own code reads the id of the token from either form a few lines later; llama.cpp's
# tokenizer.ggml.add_bos_token decides whether the begin token is put in front of a prompt.
# gguf 0.19.0, transformers 5.24.0, 2026-11-29
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet gguf==0.19.0 transformers==5.24.0 tokenizers==0.23.3
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
import json
import logging
from importlib.metadata import version
from pathlib import Path

from gguf import SpecialVocab
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer

logging.disable(logging.CRITICAL)
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bpe = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.add_special_tokens(["<s>"])
bpe.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 256)])
folder = Path("folder")
folder.mkdir()
bpe.save("folder/tokenizer.json")
as_object = dict(content="<s>", lstrip=False, normalized=False, rstrip=False, single_word=False)
print("gguf", version("gguf"), "transformers", version("transformers"))
flags = []
for bos in ("<s>", {"__type": "AddedToken", **as_object}):
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    vocabulary = SpecialVocab(folder, load_merges=True)
    ids = AutoTokenizer.from_pretrained("folder")("a")["input_ids"]
    assert ids[0] == vocabulary.special_token_ids["bos"] == 256
    flags.append(vocabulary.add_special_token.get("bos"))
    print("as", type(bos).__name__, "- transformers:", ids, "- gguf adds bos:", flags[-1])
assert flags == [True, False], "the behaviour changed"
PYTHON
