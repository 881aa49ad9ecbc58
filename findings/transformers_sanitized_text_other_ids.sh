#!/bin/sh
# One would expect: with sanitize_control_tokens=True, a control token that a user types is "encoded as ordinary text":
# the ids of the same text by the same tokenizer without that added token.
# What happens: transformers 5.24.0 encodes the text in front, the typed token and the text behind one by one, so no
# token reaches across their borders: ` <think>` becomes ` ` and `<`, where ordinary text has ` <`. And two characters
# for private use (U+F0000, U+F0001) vanish from the text of users, without a word.
# Source of the expectation: the docstring of apply_chat_template, parameter sanitize_control_tokens.
# 2026-11-28
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6
cd "$work"
TRANSFORMERS_VERBOSITY=critical "$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocab = {letter: id_ for id_, letter in enumerate(letters)} | {"\u0120<": 256}


def tokenizer(*added):
    bpe = Tokenizer(models.BPE(vocab, [("\u0120", "<")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_tokens([AddedToken(token, normalized=False) for token in added])
    return PreTrainedTokenizerFast(tokenizer_object=bpe)


tagged = tokenizer("<think>")
tagged.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}{{ '' and '<think>' }}"
print("transformers", version("transformers"), "tokenizers", version("tokenizers"))
found = []
for text in ("a <think>", "a\U000f0000b"):
    chat = [{"role": "user", "content": text}]
    ids = tagged.apply_chat_template(chat, sanitize_control_tokens=True, return_dict=False)
    expected = tokenizer().encode(text)
    print(repr(text), "ordinary text", tagged.convert_ids_to_tokens(expected))
    print(" " * len(repr(text)), "sanitized    ", tagged.convert_ids_to_tokens(ids))
    found.append((ids == expected, tagged.decode(ids)))
assert found == [(False, "a <think>"), (False, "ab")], "the behaviour changed"
PYTHON
