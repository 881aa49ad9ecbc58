"""The compiled module reads the large parts of files: the same tokenizer as the readers in Python,
or the same error."""

import base64
import json
import random

import pytest

from tests.native_module import native_module
from tests.tokenizer_core.formats.small_specs import changed, small_tekken, trained_spec, wild_ranks
from tokenizer_core.engines.native_calls import (
    read_packed_model,
    read_rank_lines,
    read_tekken_entries,
)
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.formats import tekken_file, tiktoken_file
from tokenizer_core.formats.tekken_file import parse_tekken
from tokenizer_core.formats.tiktoken_file import _parse_line_by_line, parse_tiktoken_ranks
from tokenizer_core.formats.tokenizer_json import document as tokenizer_json
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.spec import AddedToken, TokenizerSpec


def small_table(n_merges=12):
    added = [AddedToken("<|end|>", 256 + n_merges), AddedToken("\u00e9 ", 257 + n_merges, False)]
    return json.loads(render_tokenizer_json(trained_spec(n_merges, special_tokens=added)))


def parsed(parse, document):
    """What the reader gives, or its error."""
    try:
        found = parse(document)
    except TokenizerCoreError as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(found, TokenizerSpec):
        return f"{found.fingerprint} {found.merge_ids.tolist()}"
    return found


def check(document, monkeypatch, parse=parse_tokenizer_json):
    """The result, which is the same with and without the compiled module."""
    packed = parsed(parse, document)
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer_json, "read_packed_model", lambda _: None)
        patch.setattr(tiktoken_file, "read_rank_lines", lambda _: None)
        patch.setattr(tekken_file, "read_tekken_entries", lambda _: None)
        assert parsed(parse, document) == packed, document
    return str(packed)


def rendered(table, **options):
    return json.dumps(table, **options).encode()


@pytest.mark.parametrize(
    ("options", "as_texts"),
    [({}, False), ({"ensure_ascii": False}, True), ({"indent": 2}, False)],
)
def test_sound_files_are_packed_however_they_are_written(options, as_texts, monkeypatch):
    native_module()
    table = small_table()
    first = "".join(table["model"]["merges"][0])
    if as_texts:
        table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    document = rendered(table, **options)
    rest, model = read_packed_model(document)
    assert json.loads(rest)["model"] == {**table["model"], "vocab": {}, "merges": []}
    assert model.entries() == table["model"]["vocab"]
    assert len(model) == len(model.entries())
    assert model[first] == table["model"]["vocab"][first]
    assert (first in model, "lowest" in model) == (True, False)
    with pytest.raises(KeyError):
        model["lowest"]
    assert "Error" not in check(document, monkeypatch)


def with_vocab(table, **entries):
    return changed(table, "model.vocab", table["model"]["vocab"] | entries)


def with_merges(table, *merges):
    return changed(table, "model.merges", [*table["model"]["merges"], *merges])


OTHERS = {
    "merges first": lambda table: {**table, "model": dict(reversed(table["model"].items()))},
    "two models": lambda table: rendered(table)[:-1] + b',"model":{}}',
    "two vocabs": lambda table: rendered(table)[:-2] + b',"vocab":{}}}',
    "a model within": lambda table: {**table, "padding": {"model": table["model"]}},
    "an escaped key": lambda table: rendered(table).replace(b'"vocab"', b'"voca\\u0062"'),
    "more after it": lambda table: rendered(table) + b"x",
    "an added entry in plain text": lambda table: with_vocab(table, **{"\u00e9 ": 900}),
    "an added entry spelt twice": lambda table: with_vocab(
        table, **{"\u00e9 ": 900, "\u00c3\u00a9\u0120": 901}
    ),
    "an entry in no alphabet": lambda table: with_vocab(table, **{"a b": 900}),
    "an empty entry": lambda table: with_vocab(table, **{"": 900}),
    "a gap": lambda table: with_vocab(table, zz=1_048_575),
    "a negative id": lambda table: with_vocab(table, zz=-1),
    "a float": lambda table: with_vocab(table, zz=900.0),
    "an id with zeros": lambda table: rendered(with_vocab(table, zz=900)).replace(b"900", b"0900"),
    "a lone surrogate": lambda table: with_vocab(table, **{"\ud800": 900}),
    "a merge of an added token": lambda table: with_merges(
        with_vocab(table, **{"<|end|>": 268, "<|end|><": 900}), ["<|end|>", "<"]
    ),
    "a merge to an added token": lambda table: with_merges(
        with_vocab(table, **{"<|end|>": 268, "<|": 901, "end|>": 902}), ["<|", "end|>"]
    ),
    "a long entry": lambda table: with_vocab(table, **{"z" * (1 << 20): 900, "z" * 1_048_577: 901}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_files_give_what_the_reader_in_python_gives(name, monkeypatch):
    native_module()
    made = OTHERS[name](small_table())
    document = made if isinstance(made, bytes) else rendered(made)
    check(document, monkeypatch)


RANKS = b"".join(b"%b %d\n" % (base64.b64encode(t), rank) for t, rank in wild_ranks(3).items())
TEKKEN = small_tekken(["<a>"], n_special=5)


def test_sound_ranks_are_read_at_once():
    native_module()
    assert read_rank_lines(RANKS) == wild_ranks(3)
    rest, tokens = read_tekken_entries(rendered(TEKKEN))
    assert json.loads(rest) == {**TEKKEN, "vocab": []}
    assert tokens == [base64.b64decode(entry["token_bytes"]) for entry in TEKKEN["vocab"]]


LINES = [
    *(b"YWJj 700", b"YWJj 700\r\n", b"YWJj  700\n", b"YWJj\t700\n", b"YWJj 0700\n", b"YWJj 5\n"),
    *(b"YQ== 700\n", b"YWJjZA== 1048575\n", b"YWJj 1048576\n", b"YWJj 4294967296\n", b"YWJj -1\n"),
    *(b"YWJj \n", b"YWJj\n", b"YWJjZB== 700\n", b"YWJjZ=== 700\n", b"YWJ=ZGVm 700\n", b"= 700\n"),
    *(b"YWJjZ 700\n", b"YW_j 700\n", b" 700\n", b"\n", b"YWJj 700\nYWJj 701\n", b"YWI= 700"),
    *(b"YQ= 1", b"YQ=== 1", b"YWI== 1", b"== 1", b"YWJj 700 \n", b"YWJj +700\n"),
    *(b"YWJjYWJj \xd9\xa1", b"YQ==YQ== 700", b"Y-_= 1", b"YWJj 700\n\n"),
]


def test_other_rank_lines_give_what_the_reader_in_python_gives(monkeypatch):
    native_module()
    for document in (document for line in LINES for document in (RANKS + line, line + RANKS)):
        check(document, monkeypatch, parse_tiktoken_ranks)
        carefully = parsed(_parse_line_by_line, document)
        assert parsed(parse_tiktoken_ranks, document) == carefully, document[:20]


PARSERS = [
    (parse_tokenizer_json, rendered(small_table(4))),
    (parse_tokenizer_json, rendered(small_table(4), ensure_ascii=False)),
    (parse_tiktoken_ranks, RANKS),
    (parse_tekken, rendered(TEKKEN)),
]


@pytest.mark.parametrize(("parse", "document"), PARSERS, ids=range(len(PARSERS)))
def test_files_that_are_changed_anywhere_give_the_same_too(parse, document, monkeypatch):
    native_module()
    rng = random.Random(len(document))
    model = max(document.find(b'"model"'), 0)
    pieces = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"0", b"null", b"\xff", b"\n"]
    pieces += [b"=", b"A", b"9", b"YQ=="]
    for _ in range(60):
        found = bytearray(document)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(0 if rng.random() < 0.3 else model, len(document))
            if rng.random() < 0.5:
                del found[at : at + rng.randrange(1, 6)]
            else:
                found[at : at + rng.randrange(2)] = rng.choice(pieces)
        check(bytes(found), monkeypatch, parse)
