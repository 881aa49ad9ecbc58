#!/bin/sh
# One would expect: transformers reads a GGUF file with the ids of the file, and finds its control tokens in a text.
# What happens: in a byte-level vocabulary transformers 5.24.0 skips each control token with a character outside of the
# byte alphabet: all of DeepSeek's, as `<｜User｜>`, whose bar is U+FF5C. From a GGUF file in the form of
# DeepSeek-R1-Distill-Qwen's, prompts have `<｜User｜>` and `<｜Assistant｜>` in pieces, and the tokens that begin and end a
# text have new ids behind the vocabulary, for which the model has no rows. No error, no warning. `<|im_start|>` and
# `<think>` are right.
# Source of the expectation: the ids in the file (`tokenizer.ggml.bos_token_id`); tokenizers 0.23.3 with the same
# tokens; the docstring of the code that skips them, which says that such tokens "get cut into pieces instead of staying
# whole".
# transformers 5.24.0, gguf 0.19.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 gguf==0.19.0 tokenizers==0.23.3 torch==2.15.0
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

from gguf import GGUFWriter, TokenType
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

for name in ("transformers", "gguf", "tokenizers"):
    print(name, version(name))
CONTROL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|im_start|>"]
PLAIN = ["<think>"]
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
merges = [("h", "e"), ("l", "l")]
tokens = [*alphabet, "he", "ll", *CONTROL, *PLAIN]
types = [TokenType.NORMAL] * (len(alphabet) + 2) + [TokenType.CONTROL] * len(CONTROL) + [TokenType.USER_DEFINED]

writer = GGUFWriter("model.gguf", "qwen2")
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("deepseek-r1-qwen")
writer.add_token_list(tokens)
writer.add_token_types(types)
writer.add_token_merges([" ".join(merge) for merge in merges])
writer.add_bos_token_id(tokens.index(CONTROL[0]))
writer.add_eos_token_id(tokens.index(CONTROL[1]))
writer.add_block_count(1)
writer.add_context_length(64)
writer.add_embedding_length(8)
writer.add_feed_forward_length(8)
writer.add_head_count(1)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
read = AutoTokenizer.from_pretrained(".", gguf_file="model.gguf")

same = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens[: len(alphabet) + 2])}, merges))
same.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
same.decoder = decoders.ByteLevel()
same.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROL])
same.add_tokens([AddedToken(token, normalized=False) for token in PLAIN])
found = {}
for token in [*CONTROL, *PLAIN]:
    ids, expected = read.encode(token, add_special_tokens=False), same.encode(token, add_special_tokens=False).ids
    assert expected == [tokens.index(token)]
    found[token] = ids == expected
    print(repr(token), "tokenizers", expected, "transformers", ids)
print("tokens of the file:", len(tokens), "bos_token_id:", read.bos_token_id, "eos_token_id:", read.eos_token_id)
assert found["<|im_start|>"] and found["<think>"]
assert not any(found[token] for token in CONTROL[:4]), "the behaviour changed"
assert len(read.encode("<｜User｜>", add_special_tokens=False)) == 12, "the behaviour changed"
assert min(read.bos_token_id, read.eos_token_id) >= len(tokens), "the behaviour changed"
PYTHON
