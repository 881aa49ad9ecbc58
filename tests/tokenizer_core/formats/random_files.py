"""Random `tokenizer.json` files of both kinds of vocabulary, with added tokens of any flags."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.tokenizer_core.formats.normalizer_files import file_of, normalizers
from tests.tokenizer_core.formats.normalizer_files import texts as changing_texts
from tests.tokenizer_core.formats.test_tokenizer_json_metaspace import RULES, table_of

CONTENTS = [
    "<s>", "<S>", "<é>", "<e\u0301>", "a", "ab", " ab", "A", "▁", "▁a", "▁▁", "  ", "\n", "é", "中",
    "<a b>", "<a▁b>", "x", "b<", "<<", ">", "\u0301", "ss", "ß", "<s>a", "K", "1", "_",
]  # fmt: skip
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}

tokens = st.lists(
    st.builds(
        lambda content, flags, special: {
            "content": content, "special": special, **{name: name in flags for name in FLAGS}
        },
        st.sampled_from(CONTENTS),
        st.sets(st.sampled_from(FLAGS)),
        st.booleans(),
    ),
    max_size=5,
    unique_by=lambda token: token["content"],
)  # fmt: skip

pre_tokenizers = st.sampled_from(
    [
        BYTE_LEVEL,
        BYTE_LEVEL | {"use_regex": False},
        BYTE_LEVEL | {"add_prefix_space": True},
        {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
        },
        {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": r"\s+|\w+"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                BYTE_LEVEL | {"use_regex": False},
            ],
        },
    ]
)


def with_tokens(table: dict[str, Any], added: list[dict[str, Any]]) -> dict[str, Any]:
    """The file with these added tokens after its own, under the ids that `tokenizers` gives."""
    entries = table["model"]["vocab"]
    known = {token["content"] for token in table["added_tokens"]}
    n_new = 0
    for token in added:
        content = token["content"]
        if content in known:
            continue
        id_ = entries.get(content, len(entries) + n_new)
        n_new += content not in entries
        table["added_tokens"].append({"id": id_, **token})
    return table


def _of_bytes(
    normalizer: dict[str, Any], pre_tokenizer: dict[str, Any], added: list[dict[str, Any]]
) -> dict[str, Any]:
    table = json.loads(file_of(normalizer, []))
    return with_tokens(table | {"pre_tokenizer": pre_tokenizer}, added)


def _of_characters(rule: str, added: list[dict[str, Any]], own: list[str]) -> dict[str, Any]:
    table = copy.deepcopy(table_of(rule))
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
