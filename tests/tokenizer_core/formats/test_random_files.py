"""Random files of both kinds of vocabulary, with added tokens of any flags, held against
`tokenizers`: equal ids, offsets and text, or a refusal by name."""

import json
from itertools import count
from typing import Any

import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.formats.normalizer_files import file_of, normalizers, pair_if_read
from tests.tokenizer_core.formats.normalizer_files import texts as changing_texts
from tests.tokenizer_core.formats.small_specs import (
    added_token,
    check_against_tokenizers,
    check_round_trips,
)
from tests.tokenizer_core.formats.test_tokenizer_json_metaspace import RULES, table_of
from tokenizer_core.errors import FormatError
from tokenizer_core.text.round_trips import check_text

CONTENTS = [
    "<s>", "<S>", "<é>", "<e\u0301>", "a", "ab", " ab", "A", "▁", "▁a", "▁▁", "  ", "\n", "é", "中",
    "<a b>", "<a▁b>", "x", "b<", "<<", ">", "\u0301", "ss", "ß", "<s>a", "K", "1", "_",
]  # fmt: skip
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


tokens = st.lists(
    st.fixed_dictionaries(
        {"content": st.sampled_from(CONTENTS), **dict.fromkeys((*FLAGS, "special"), st.booleans())}
    ),
    max_size=5,
    unique_by=lambda made: made["content"],
)
DIGITS = {"type": "Digits", "individual_digits": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+|\w+"}, "behavior": "Isolated", "invert": False}
pre_tokenizers = st.sampled_from(
    [
        BYTE_LEVEL,
        BYTE_LEVEL | {"use_regex": False},
        BYTE_LEVEL | {"add_prefix_space": True},
        {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
        {"type": "Sequence", "pretokenizers": [SPLIT, BYTE_LEVEL | {"use_regex": False}]},
    ]
)


def with_tokens(table: dict[str, Any], added: list[dict[str, Any]]) -> dict[str, Any]:
    """The file with these added tokens after its own, under the ids that `tokenizers` gives."""
    entries = table["model"]["vocab"]
    known = {token["content"] for token in table["added_tokens"]}
    ids = count(len(entries))
    for token in added:
        content = token["content"]
        if content not in known:
            id_ = entries[content] if content in entries else next(ids)
            table["added_tokens"].append({"id": id_, **token})
    return table


def _of_bytes(
    normalizer: dict[str, Any], pre_tokenizer: dict[str, Any], added: list[dict[str, Any]]
) -> dict[str, Any]:
    table = json.loads(file_of(normalizer, []))
    return with_tokens(table | {"pre_tokenizer": pre_tokenizer}, added)


def _of_characters(rule: str, added: list[dict[str, Any]], own: list[str]) -> dict[str, Any]:
    table = table_of(rule)
    for token in table["added_tokens"]:
        token |= dict.fromkeys(own, True)
    return with_tokens(table, added)


files = st.one_of(
    st.builds(_of_bytes, normalizers, pre_tokenizers, tokens),
    st.builds(
        _of_characters,
        st.sampled_from(list(RULES)),
        tokens,
        st.sampled_from([[], ["normalized"], ["normalized", "single_word"], ["lstrip"]]),
    ),
)
_PIECES = [
    *CONTENTS, *" \n\tab.x1_", "<s", "s>", "  ", " \n", "\u00a0", "\u212a", "İ", "É", "Ａ", "🙂",
    "</s>", "<unk>", "word", "中文",
]  # fmt: skip
texts = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join) | changing_texts

LOWER = with_tokens(
    json.loads(file_of({"type": "Lowercase"}, [])),
    [
        added_token("<É>", normalized=True, rstrip=True),
        added_token("<s>", lstrip=True),
        added_token("X", single_word=True),
    ],
)
PREPENDED = with_tokens(table_of("metaspace-prepend"), [added_token("<a b>", normalized=True)])
# NFC joins a mark, which is a word character, to a symbol, which is none.
JOINED = with_tokens(
    json.loads(file_of({"type": "NFC"}, [])), [added_token("=|", single_word=True)]
)


def is_in_alphabet(content: str) -> bool:
    """Whether `tokenizers` may decode such a token as bytes, which are not those of its text."""
    return any("\x7f" < character < "\u0144" for character in content)


@given(table=files, text=texts, is_trusted=st.booleans(), size=st.integers(0, 20))
@example(table=LOWER, text="a <É> b <s> <é>\n<S> X xX", is_trusted=True, size=3)
@example(table=JOINED, text="=\u0338<|X= <|X=\u0338 a<|X=b <|X=.", is_trusted=True, size=2)
@example(table=PREPENDED, text="<a b>a <a b> b<s> <a▁b>", is_trusted=False, size=4)
@examples(2)
def test_ids_offsets_text_segments_and_written_files(table, text, is_trusted, size):
    theirs, ours = pair_if_read(json.dumps(table).encode())
    spec = ours[0].spec
    # With NFC alone, a token covers all characters that were composed.
    check_against_tokenizers(theirs, ours, text, has_offsets=spec.normalizer != "nfc")
    ids = theirs.encode(text, add_special_tokens=False).ids
    parts, found = [(text[:size], is_trusted), (text[size:], not is_trusted)], []
    for tokenizer in ours:
        assert check_text(tokenizer, text).first_difference is None
        assert tokenizer.encode_segments([(part, True) for part, _ in parts]) == ids
        try:
            found.append(tokenizer.encode_segments(parts))
        except Exception as error:
            found.append([type(error)])
    assert found[1:] == found[:-1]
    if not any(is_in_alphabet(theirs.id_to_token(added["id"])) for added in table["added_tokens"]):
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    try:
        again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    except FormatError:  # the format cannot hold this spec
        return
    assert again.encode(text, add_special_tokens=False).ids == ids
