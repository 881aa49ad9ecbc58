#!/bin/sh
# One would expect: `train_new_from_iterator` of Llama 2's or Mistral 7B's tokenizer gives one that encodes every text,
# as the old one does: a character without a token of its own is the tokens of its bytes.
# What happens: with transformers 5.24.0 the new vocabulary has none of the 256 tokens of bytes. `byte_fallback` is still
# true, and every character that was not in the training text is <unk>: emoji, and line breaks if none was learned, are
# lost, without an error or a warning. For byte-level vocabularies the same method adds all bytes.
# Source of the expectation: its docstring: "with the same defaults (in terms of special tokens or tokenization
# pipeline) as the current one".
# transformers 5.24.0, tokenizers 0.23.3, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$work"
"$work/venv/bin/python" - <<'PYTHON' 2>"$work/log" || { cat "$work/log"; exit 1; }
from importlib.metadata import version

from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

for name in ("transformers", "tokenizers"):
    print(name, version(name))
pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefghijklmnopqrstuvwxyz"]
vocab = {piece: index for index, piece in enumerate(pieces)}
tokenizer = Tokenizer(BPE(vocab, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
tokenizer.decoder = decoders.Sequence(
    [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
tokenizer.add_special_tokens(["<unk>"])
old = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
new = old.train_new_from_iterator(["some text and some more text"] * 4, 400)
text = "some text\n\U0001f642"
decoded = [each.decode(each(text)["input_ids"]) for each in (old, new)]
for name, each, shown in (("old", old, decoded[0]), ("new", new, decoded[1])):
    print(name, "byte_fallback", each.backend_tokenizer.model.byte_fallback, "tokens of bytes",
          sum(token.startswith("<0x") for token in each.get_vocab()), "decoded", ascii(shown))
assert new.backend_tokenizer.model.byte_fallback
assert decoded == [text, "some text<unk>"], "the behaviour changed"
PYTHON
