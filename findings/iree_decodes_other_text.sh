#!/bin/sh
# One would expect: the ids that iree-tokenizer gives for a text decode to that text, with GPT-2's decoder (ByteLevel)
# and with Llama 2's (Replace, ByteFallback, Fuse, Strip).
# What happens: iree-tokenizer 0.3.0 checks each token for UTF-8 by itself: a character whose bytes are in several tokens
# becomes one U+FFFD a byte, as most emoji and many Chinese characters are with GPT-2's and Llama 3's vocabularies. And
# `Strip`, which takes one space from the beginning of the text, takes one from each token: Llama 2's "I am" is "Iam".
# No error; `decode_stream_iter` gives the same.
# Source of the expectation: its README ("with full HuggingFace `tokenizer.json` and OpenAI tiktoken compatibility");
# tokenizers 0.23.3.
# iree-tokenizer 0.3.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet iree-tokenizer==0.3.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from iree.tokenizer import Tokenizer as Iree
from iree.tokenizer import decode_stream_iter
from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

for name in ("iree-tokenizer", "tokenizers"):
    print(name, version(name))

alphabet = sorted(ByteLevel.alphabet())
of_bytes = Tokenizer(BPE({character: index for index, character in enumerate(alphabet)}, []))
of_bytes.pre_tokenizer = ByteLevel(add_prefix_space=False)
of_bytes.decoder = decoders.ByteLevel()

pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "I", "a", "m", "\u2581I", "am", "\u2581am"]
merges = [("\u2581", "I"), ("a", "m"), ("\u2581", "am")]
llama = BPE(
    {piece: index for index, piece in enumerate(pieces)},
    merges,
    unk_token="<unk>",
    fuse_unk=True,
    byte_fallback=True,
)
of_characters = Tokenizer(llama)
of_characters.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
of_characters.decoder = decoders.Sequence(
    [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)

found = []
for tokenizer, text in ((of_bytes, "caf\u00e9 \U0001f642"), (of_characters, "I am am"), (of_bytes, "I am am")):
    tokenizer.save("tokenizer.json")
    iree = Iree.from_file("tokenizer.json")
    ids = tokenizer.encode(text).ids
    assert list(iree.encode(text)) == ids
    assert tokenizer.decode(ids) == text
    got, streamed = iree.decode(ids), "".join(decode_stream_iter(iree, iter(ids)))
    found.append((got, streamed))
    print("text", ascii(text), "decoded", ascii(got), "streamed", ascii(streamed))
assert found == [
    ("caf\ufffd\ufffd \ufffd\ufffd\ufffd\ufffd",) * 2,
    ("Iamam",) * 2,
    ("I am am",) * 2,
], "the behaviour changed"
PYTHON
