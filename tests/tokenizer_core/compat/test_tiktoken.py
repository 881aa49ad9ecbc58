"""The replacement of tiktoken, against tiktoken: its ids, exceptions, defaults and tables."""

import copy
import inspect
import pickle
import random
from functools import cache

import pytest
import tiktoken as theirs
from hypothesis import example, given
from hypothesis import strategies as st
from tiktoken import model as their_model
from tiktoken_ext import openai_public

from tests.profiles import examples
from tokenizer_core.compat import tiktoken as ours
from tokenizer_core.errors import PresetError
from tokenizer_core.presets import MODEL_PREFIXES, MODELS, PRESETS

SPECIAL = {"<|endoftext|>": 400, "<|a|>": 401, "<|ab|>": 500}


def small_ranks():
    """A vocabulary with white space, two- and three-byte characters and words."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    texts = ["  ", "\n\n", " \n", "the", " the", "he", "é", "東", "東京", "ab", "abc", " a", "12"]
    texts += ["\r\n"]
    for text in texts:
        data = text.encode()
        for end in range(2, len(data) + 1):
            ranks.setdefault(data[:end], len(ranks))
    return ranks


@cache
def pair(name):
    """Both libraries' encodings of one definition."""
    fields = {"mergeable_ranks": small_ranks(), "special_tokens": SPECIAL}
    if name == "gpt2":
        our = ours.get_encoding("gpt2")
        fields = {"mergeable_ranks": our._mergeable_ranks, "special_tokens": our._special_tokens}
        return our, theirs.Encoding(name, pat_str=openai_public.r50k_pat_str, **fields)
    fields["pat_str"] = {"small": CL100K, "dropping": r"\p{L}+|\p{N}"}[name]
    return ours.Encoding(name, **fields), theirs.Encoding(name, **fields)


CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
every_name = pytest.mark.parametrize("name", ["gpt2", "small", "dropping"])
PIECES = [
    "the", " the", "he", " ", "  ", "\n", "\n\n", " \n", "\r\n", "a", "abc", "é", "東", "京", "12",
    "!", "<|endoftext|>", "<|a|>", "<|ab|>", "<|", "👩", "\u2009", "\x1c", "\ud83d", "\udc4d",
    "x" * 40,
]  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


def outcome(call, *arguments, **options):
    """The result of a call, or the class of what it raises."""
    try:
        return call(*arguments, **options)
    except (KeyError, UnicodeError) as error:
        return type(error)
    except ValueError:
        return ValueError


@every_name
@given(text=TEXTS)
@examples(2 / 3)
def test_ids_equal_tiktoken_with_every_policy(name, text):
    our, their = pair(name)
    assert our.encode_ordinary(text) == their.encode_ordinary(text)
    for options in (
        {},
        {"allowed_special": "all"},
        {"disallowed_special": ()},
        {"allowed_special": {"<|endoftext|>"}, "disallowed_special": ()},
        {"allowed_special": {"<|endoftext|>", "unknown"}},
        {"allowed_special": "all", "disallowed_special": "all"},
        {"disallowed_special": ["the"]},
        {"allowed_special": {"<|a|>"}, "disallowed_special": {"<|a|>"}},
    ):
        expected = outcome(their.encode, text, **options)
        assert outcome(our.encode, text, **options) == expected, options
        assert outcome(our.encode_batch, iter([text, "a"]), **options) == (
            [expected, outcome(their.encode, "a", **options)]
            if expected is not ValueError
            else expected
        )
        if isinstance(expected, list):
            assert our.encode_to_numpy(text, **options).tolist() == expected
    assert our.encode_ordinary_batch(iter([text, ""])) == [their.encode_ordinary(text), []]


@pytest.mark.parametrize("name", ["small", "dropping"])
@given(text=st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
@example(text="  !\n")  # white space before and at the end of the last piece
@examples(1 / 2)
def test_unstable_ids_equal_tiktoken(name, text):
    our, their = pair(name)
    for options in ({"allowed_special": "all"}, {"disallowed_special": ()}):
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        stable, completions = their.encode_with_unstable(clean, **options)
        found = our.encode_with_unstable(text, **options)
        assert (found[0], sorted(found[1])) == (stable, sorted(completions))


@every_name
@given(data=st.one_of(st.binary(), TEXTS.map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_bytes_that_are_no_text(name, data):
    our, their = pair(name)
    assert our._encode_bytes(data) == their._encode_bytes(data)
    if data:
        assert our._encode_single_piece(data) == their._encode_single_piece(data)


@pytest.mark.parametrize("name", ["gpt2", "small"])
@given(seed=st.integers(0, 10_000))
def test_decoding_equals_tiktoken(name, seed):
    our, their = pair(name)
    rng = random.Random(seed)
    known = sorted(our.tokenizer.spec.vocab)
    ids = rng.choices(known, k=rng.choice([0, 1, 5, 30]))
    assert our.decode_bytes(ids) == their.decode_bytes(ids)
    for errors in ("replace", "ignore", "strict"):
        assert outcome(our.decode, ids, errors) == outcome(their.decode, ids, errors)
    assert our.decode_tokens_bytes(ids) == their.decode_tokens_bytes(ids)
    assert outcome(our.decode_with_offsets, ids) == outcome(their.decode_with_offsets, ids)
    text_ids = their.encode(their.decode(ids, errors="ignore"), allowed_special="all")
    assert our.decode_with_offsets(text_ids) == their.decode_with_offsets(text_ids)
    batch = [ids, [], text_ids]
    assert our.decode_batch(batch) == their.decode_batch(batch)
    assert our.decode_bytes_batch(batch) == their.decode_bytes_batch(batch)


@every_name
def test_single_tokens_and_figures(name):
    our, their = pair(name)
    for id_ in [*range(300), 400, 401, 450, 500, 50256, 60_000]:
        expected = outcome(their.decode_single_token_bytes, id_)
        assert outcome(our.decode_single_token_bytes, id_) == expected
        if expected is not KeyError:
            assert our.encode_single_token(expected) == id_
        assert our.is_special_token(id_) == their.is_special_token(id_)
    for wrong in (65.0, "a", None):
        for method in (our.decode_single_token_bytes, our.is_special_token):
            with pytest.raises(TypeError):
                method(wrong)
        with pytest.raises(TypeError):
            our.decode_tokens_bytes([65, wrong])
    for call in (our.encode, our.encode_ordinary, our.encode_single_token):
        for wrong in (["a"], None, 5):
            with pytest.raises(TypeError, match=r"a str\b.*not (list|NoneType|int)"):
                call(wrong)
    for token in ("the", " the", "<|endoftext|>", b"\xe6", "no such", b"\xff\xff"):
        assert outcome(our.encode_single_token, token) == outcome(their.encode_single_token, token)
    for figure in ("n_vocab", "max_token_value", "eot_token", "special_tokens_set", "name"):
        assert getattr(our, figure) == getattr(their, figure)
    assert our.token_byte_values() == their.token_byte_values()
    # No names, and an empty name, to refuse.
    for one in (our, their):
        ordinary = one.encode_ordinary("a<|endoftext|>")
        assert one.encode("a<|endoftext|>", disallowed_special=None) == ordinary
        with pytest.raises(ValueError, match="disallowed"):
            one.encode("a", disallowed_special=[""])
        with pytest.raises(ValueError, match=r"disallowed_special=\(\)"):
            one.encode("a<|endoftext|>")


def test_every_public_name_of_tiktoken_is_there_with_its_parameters():
    assert {name for name in dir(theirs.Encoding) if name[0] != "_"} <= set(dir(ours.Encoding))
    for name, method in inspect.getmembers(theirs.Encoding, inspect.isfunction):
        if name[0] != "_":
            mine, expected = (
                [(p.name, p.kind, p.default or frozenset()) for p in signature.parameters.values()]
                for signature in map(inspect.signature, (getattr(ours.Encoding, name), method))
            )
            assert mine == expected
    functions = {name for name, value in vars(theirs).items() if inspect.isfunction(value)}
    assert functions <= set(ours.__all__)


def test_models_are_those_of_tiktoken():
    for model, name in their_model.MODEL_TO_ENCODING.items():
        assert ours.encoding_name_for_model(model) == name
    for prefix, name in their_model.MODEL_PREFIX_TO_ENCODING.items():
        assert ours.encoding_name_for_model(prefix + "2099") == name
    for encoding, listed in (*MODELS.items(), *MODEL_PREFIXES.items()):
        for model in listed.split():
            assert their_model.encoding_name_for_model(model) == encoding
    with pytest.raises(KeyError, match="no encoding is known for the model 'claude'"):
        ours.encoding_name_for_model("claude")
    assert ours.encoding_for_model("gpt-2") is ours.get_encoding("gpt2")


def test_encodings_are_those_of_the_presets(monkeypatch, tmp_path):
    assert ours.list_encoding_names() == list(PRESETS) == theirs.list_encoding_names()
    for unknown in ("gpt5", None, b"gpt2"):
        with pytest.raises(ValueError, match=r"there is no encoding .* there are gpt2, r50k_base"):
            ours.get_encoding(unknown)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PresetError, match="tokenizer pull p50k_edit"):
        ours.get_encoding("p50k_edit")


class Subclass(ours.Encoding):
    """Of a user; copies are of it, too."""


def test_copies():
    our, _ = pair("gpt2")
    assert len(pickle.dumps(our)) < 200  # a preset is stored by its name
    # The name of a preset, whose file need not be there.
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"": 256, b"ab": 257}
    fields = {"pat_str": r"\S+|\s+", "special_tokens": {"<e>": 300}}
    for one in (our, Subclass("cl100k_base", **fields, mergeable_ranks=ranks)):
        for copied in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert (type(copied), copied.name) == (type(one), one.name)
            assert copied.tokenizer == one.tokenizer
            assert copied.encode("ab") == one.encode("ab")
    assert one.encode("ab<e>", allowed_special="all") == [257, 300]
    assert one.encode_single_token("") == 256
    assert one.token_byte_values()[:2] == [b"", b"\0"]


def test_a_wrong_size_is_refused():
    base = ours.get_encoding("gpt2")
    fields = {"pat_str": base._pat_str, "mergeable_ranks": base._mergeable_ranks}
    extended = ours.Encoding("e", **fields, special_tokens={"<|a|>": 50256}, explicit_n_vocab=50257)
    assert extended.tokenizer.spec.pattern.name == "gpt2"
    assert extended.encode("<|a|>a", allowed_special="all") == [50256, 64]
    for size, special in ((50257, {}), (50257, {"<|a|>": 50300})):
        with pytest.raises(ValueError, match="explicit_n_vocab is 50257, but there are"):
            ours.Encoding("e", **fields, special_tokens=special, explicit_n_vocab=size)
