"""Translated expressions against their libraries: random ones, all classes, two published ones."""

import json

import pytest
import tiktoken
import tokenizers
from hypothesis import event, given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Regex, pre_tokenizers

from tests.integration.parity.references import Pair, check_samples
from tests.profiles import first_and_slow
from tests.tokenizer_core.splitting.dialects.foreign_expressions import (
    Grammar,
    LibraryError,
    random_text,
    split_by_tiktoken,
    split_by_tokenizers,
)
from tokenizer_core import Tokenizer
from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.splitting.dialects.properties import POSIX_FANCY, POSIX_ONIGURUMA, PROPERTIES
from tokenizer_core.splitting.patterns import PUBLISHED, SplitPattern, resolve_pattern
from tokenizer_core.splitting.pretokenize import split

CODE_POINTS = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
SHORTHANDS = [r"\s", r"\d", r"\w", r"\h", "."]

# `tokenization_kimi.py` of Kimi K2.
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join(
    (
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@pytest.mark.parametrize("dialect", ["fancy-regex", "oniguruma"])
@given(random=st.randoms(use_true_random=False))
def test_a_random_expression_splits_as_in_its_library_or_is_refused(dialect, random):
    # Most random expressions are refused, so each example tries several.
    for _ in range(10):
        _check_random_expression(dialect, random)


def _check_random_expression(dialect, random):
    expression = Grammar(random).expression()
    texts = [random_text(random, n_chars) for n_chars in (3, 8, 16, 16)]
    unmatched = "drop" if dialect == "fancy-regex" else "keep"
    theirs = split_by_tiktoken if dialect == "fancy-regex" else split_by_tokenizers
    try:
        pattern = resolve_pattern(SplitPattern("custom", expression, dialect, unmatched))
    except UnknownPatternError:
        event("refused here")
        return
    try:
        expected = theirs(expression, texts)
    except LibraryError:
        event("refused there")
        return
    event("compared")
    assert [split(text, pattern) for text in texts] == expected, expression


def matched_by_tiktoken(expression):
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding(
        "bytes", pat_str=expression, mergeable_ranks=ranks, special_tokens={}
    )
    return bytes(encoding.encode_ordinary(CODE_POINTS)).decode()


def matched_by_tokenizers(expression):
    split_all = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    return "".join(piece for piece, _ in split_all.pre_tokenize_str(CODE_POINTS))


CLASSES = [
    ("fancy-regex", r"[[:alpha:]]"),
    *(("fancy-regex", one) for one in SHORTHANDS),
    *(("oniguruma", one) for one in SHORTHANDS),
    *(("oniguruma", f"[{one}]") for one in SHORTHANDS[:-1]),
    *(("fancy-regex", f"[[:{name}:]]") for name in POSIX_FANCY),
    *(("oniguruma", f"[[:{name}:]]") for name in POSIX_ONIGURUMA),
    *(("fancy-regex", rf"\p{{{name}}}") for name in PROPERTIES),
    *(("oniguruma", rf"\p{{{name}}}") for name in PROPERTIES),
]


@pytest.mark.parametrize("named", first_and_slow(CLASSES), ids=lambda named: "-".join(named))
def test_a_class_has_the_code_points_of_its_library(named):
    dialect, expression = named
    theirs = matched_by_tiktoken if dialect == "fancy-regex" else matched_by_tokenizers
    pattern = resolve_pattern(SplitPattern("custom", f"(?:{expression})+", dialect, "drop"))
    assert "".join(split(CODE_POINTS, pattern)) == theirs(expression)


@pytest.mark.shared_data
def test_kimi_gives_the_ids_of_tiktoken(shared_data):
    path = shared_data / "vocab_open" / "kimi_k2.tiktoken"
    if not path.is_file():
        pytest.skip(f"there is no {path.name} in the shared data")
    ranks = load_tiktoken_bpe(str(path))
    theirs = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={})
    ours = Tokenizer.from_tiktoken(path, pattern="kimi_k2", special_tokens={})
    check_samples(Pair("kimi", ours, theirs.encode_ordinary), shared_data, 60_000)


@pytest.mark.shared_data
def test_the_expression_of_qwen_3_5_gives_the_ids_of_tokenizers(shared_data):
    """In the file of Qwen 3, whose vocabulary is another one."""
    path = shared_data / "vocab" / "qwen3.tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    split_step = table["pre_tokenizer"]["pretokenizers"][0]
    split_step["pattern"]["Regex"] = PUBLISHED["qwen3_5"].expression
    data = json.dumps(table)
    theirs = tokenizers.Tokenizer.from_str(data)
    ours = Tokenizer.from_spec(parse_tokenizer_json(data.encode()))

    def encode(text):
        return theirs.encode(text, add_special_tokens=False).ids

    check_samples(Pair("qwen", ours, encode), shared_data, 60_000)
