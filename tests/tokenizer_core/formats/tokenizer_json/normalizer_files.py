"""Small `tokenizer.json` files with any normalizer, and texts that normalizers change."""

import json

from hypothesis import reject
from hypothesis import strategies as st

from tests.tokenizer_core.formats.small_specs import added_token, bpe_file, pair_of
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.gpt2_files import byte_to_unicode

_MERGES = [
    ("a", "b"), ("Ġ", "a"), ("Ġa", "b"), ("s", "s"), ("Ġ", "Ġ"), ("Ì", "ģ"), ("e", "Ì"), ("Ï", "ĥ"),
    ("f", "i"), ("Ċ", "Ċ"), ("x", "a"), (".", "."), ("k", "i"), ("á", "Ħ"),
]  # fmt: skip
_VOCAB = {
    text: id_
    for id_, text in enumerate([*byte_to_unicode().values(), *("".join(m) for m in _MERGES)])
}

STRINGS = [" ", "a", "ab", "aa", "  ", "", ".", "\u0301", "ﬁ", "A", "é", "\u1161", "a.", "[", "\n"]
CONTENTS = ["", " ", "a", "▁", "b\u0301", "aa", "Σ", "\u11a8", "\u0301", "\n "]
EXPRESSIONS = [
    r"\s+", " {2,}", r"[\r\n]+", "a+", "a*", "(?<=a)b", r"\p{M}", "^a", "b$", r"\bs", r"[A-Z]\d?",
    "ab|a", r"\w", "(?i:ß|s)", "x?", r"\s+(?!\S)", r"[^a]b",
]  # fmt: skip

steps = st.one_of(
    st.sampled_from(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"]).map(
        lambda kind: {"type": kind}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("Replace"),
            "pattern": st.one_of(
                st.sampled_from(STRINGS).map(lambda text: {"String": text}),
                st.sampled_from(EXPRESSIONS).map(lambda text: {"Regex": text}),
            ),
            "content": st.sampled_from(CONTENTS),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("Strip"), "strip_left": st.booleans(), "strip_right": st.booleans()}
    ),
    st.sampled_from(CONTENTS[1:]).map(lambda text: {"type": "Prepend", "prepend": text}),
)
normalizers = st.lists(steps, max_size=4).map(
    lambda listed: {"type": "Sequence", "normalizers": listed}
)

_TRAPS = [
    *"ab A.Sß[\r\n\tkKéÉñ中文🙂", "é", "\u0301", "\u0323", "\u0308\u0301", "가", "\u1161",
    "\u1100\u1161\u11a8", "ﬁ", "ﬀ", "Σ", "ΑΣ", "σς", "\u0130", "\u212a", "\u212b", "ｱ", "\uff9e",
    "Ａｂ", "①", "\u3000", "\x85", "\xa0", "\u2028", "\x1c", "\u0344", "\u0f73", "\u0958", "\ufdfa",
    "\u09c7\u09be", "\u1e9e", "ǅ", "\U00016d63\U00016d67", "\U00016d63", "\U00016d67", "\u0897",
    "\u1acf", "\U000105d2\u0307", "\ua7cb", "\U00010d50", "\U0001ccd6", "\ua7f1", "\u3133",
    "\u314f", "\ud7a3", "\U0001d15e", "\u1ffc", "\u0345", "  ", "aab", "<s>", "<S>", "<é>", "<É>",
    "<e\u0301>", "<|a|>", "<|A|>", "\ufb1d",
]  # fmt: skip
texts = st.lists(st.sampled_from(_TRAPS) | st.characters(codec="utf-8"), max_size=12).map("".join)

TOKENS = [("<s>", False), ("<é>", True), ("<|A|>", True), ("<|a|>", False), ("ab\n", True)]


def file_of(normalizer, tokens=None):
    """A file with this normalizer, and these added tokens: content, and `normalized`."""
    added = [
        {"id": len(_VOCAB) + index, **added_token(content, normalized=flag, special=index % 2 == 0)}
        for index, (content, flag) in enumerate(TOKENS if tokens is None else tokens)
    ]
    return json.dumps(
        bpe_file(_VOCAB, _MERGES, {}, added_tokens=added, normalizer=normalizer)
    ).encode()


def pair_if_read(data):
    """The file in both libraries; a file that is refused is no example of Hypothesis."""
    try:
        return pair_of(json.loads(data))
    except (FormatError, InvalidSpecError):
        return reject()


def file_without_bytes(normalizer, tokens=None, **model):
    """The same without some bytes of UTF-8, one of them of ASCII, two of them continuing."""
    table = json.loads(file_of(normalizer, tokens))
    lost = [byte_to_unicode()[byte] for byte in (0x41, 0x5B, 0x62, 0xA9, 0xB8, 0xE4)]
    merges = [pair for pair in table["model"]["merges"] if not set("".join(pair)) & set(lost)]
    kept = [text for text in table["model"]["vocab"] if text not in lost]
    names = [*(text for text in kept if len(text) == 1), *map("".join, merges), "Ab"]
    if model.get("unk_token"):
        names.append("<unk>")
    table["model"].update(vocab={text: id_ for id_, text in enumerate(names)}, merges=merges)
    for index, token in enumerate(table["added_tokens"]):
        token["id"] = len(names) + index
    table["model"].update(model)
    return json.dumps(table).encode()
