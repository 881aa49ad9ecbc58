#!/bin/sh
# One would expect: llama.cpp, with `tokenizer.ggml.pre` of gpt-oss and GPT-4o (`gpt-4o`), splits a text as o200k's
# pattern does, whose letters include marks (\p{M}): a Hindi word with vowel signs is one piece.
# What happens: llama.cpp's pattern has no marks. It splits in front of each vowel sign of Hindi and Thai and each point
# of Hebrew, so the text has other and more ids than in tokenizers, without an error. Words without marks are equal.
# Source of the expectation: the pattern in tiktoken_ext/openai_public.py; ggml-org/llama.cpp, issue 27783 and pull
# request 28054, which keep it.
# xllamacpp 2026.10.11549 (llama.cpp of October 2026), gguf 0.19.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xllamacpp==2026.10.11549 gguf==0.19.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
import socket
import urllib.request
from importlib.metadata import version

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType
from tokenizers import Regex, Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SHORT}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SHORT}",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
WORDS = ("hello", "привет", "नमस्ते", "ที่นี่", "שָׁלוֹם")
WIDTH = 32

tokenizer = Tokenizer(models.BPE(ignore_merges=False))
tokenizer.pre_tokenizer = Sequence([Split(Regex(O200K), "isolated"), ByteLevel(False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=500, initial_alphabet=ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False
)
tokenizer.train_from_iterator(WORDS * 10, trainer)
model = json.loads(tokenizer.to_str())["model"]
size = len(model["vocab"])

writer = GGUFWriter("model.gguf", "llama")
for add, value in (
    (writer.add_context_length, 64),
    (writer.add_embedding_length, WIDTH),
    (writer.add_block_count, 1),
    (writer.add_feed_forward_length, WIDTH),
    (writer.add_head_count, 1),
    (writer.add_layer_norm_rms_eps, 1e-5),
    (writer.add_tokenizer_model, "gpt2"),
    (writer.add_tokenizer_pre, "gpt-4o"),
    (writer.add_token_list, sorted(model["vocab"], key=model["vocab"].get)),
    (writer.add_token_types, [TokenType.CONTROL] + [TokenType.NORMAL] * (size - 1)),
    (writer.add_token_merges, [" ".join(pair) for pair in model["merges"]]),
    (writer.add_eos_token_id, 0),
):
    add(value)
shapes = {"token_embd": (size, WIDTH), "output": (size, WIDTH), "output_norm": (WIDTH,)}
for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    shapes[f"blk.0.{part}"] = (WIDTH, WIDTH)
for part in ("attn_norm", "ffn_norm"):
    shapes[f"blk.0.{part}"] = (WIDTH,)
for name, shape in shapes.items():
    writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
settings = xllamacpp.CommonParams()
settings.model.path, settings.port, settings.n_ctx, settings.warmup = "model.gguf", port, 64, False
settings.verbosity = 0
server = xllamacpp.Server(settings)
for name in ("xllamacpp", "gguf", "tokenizers"):
    print(name, version(name))
same = {}
for word in WORDS:
    request = urllib.request.Request(f"{server.listening_address}/tokenize", json.dumps({"content": word}).encode())
    ids = json.load(urllib.request.urlopen(request))["tokens"]
    expected = tokenizer.encode(word).ids
    assert len(expected) == 1
    same[word] = ids == expected
    print(word, "tokenizers", expected, "llama.cpp", ids)
assert list(same.values()) == [True, True, False, False, False], "the behaviour changed"
PYTHON
