"""A vocabulary whose words end with a suffix, as CLIP's, held against `tokenizers`."""

import copy
import dataclasses
import json
from functools import cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from tests.tokenizer_core.every_way import check_parts
from tests.tokenizer_core.formats.small_specs import (
    added_token,
    changed,
    check_against_tokenizers,
    check_refusal,
    check_round_trips,
    pair_of,
)
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import texts as trap_texts
from tokenizer_core.engines.python_engine import WINDOW_BYTES
from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.evaluation.unreachable import unreachable_tokens
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.spec.alphabet import MissingBytes
from tokenizer_core.spec.fingerprint import list_extensions
from tokenizer_core.text.round_trips import check_text

SUFFIX = "</w>"
SPLIT = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
CORPUS = [
    "the quick brown fox jumps over the lazy dog, the fox's tail, they'll see 1234 cafés! " * 3,
    "a photo of a cat; a PHOTO of the dog... </w> w</w> привет мир 中文字 中文 한국어 naïve ﬁne",
]


@cache
def clip(pattern="clip"):
    """A small file with the structure of openai/clip-vit-base-patch32."""
    made = tokenizers.Tokenizer(
        models.BPE(
            unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix=SUFFIX
        )
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Split(Regex(SPLIT), "removed", invert=True)
    made.pre_tokenizer = (
        pre_tokenizers.Sequence([split, byte_level]) if pattern == "clip" else byte_level
    )
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=700, end_of_word_suffix=SUFFIX, show_progress=False)
    )
    table = json.loads(made.to_str())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learned = [text for text in table["model"]["vocab"] if len(text.removesuffix(SUFFIX)) > 1]
    names = [*alphabet, *(text + SUFFIX for text in alphabet), *learned]
    table["model"]["vocab"] = {text: id_ for id_, text in enumerate(dict.fromkeys(names))}
    n_names = len(table["model"]["vocab"])
    for index, content in enumerate(("<|startoftext|>", "<|endoftext|>")):
        table["model"]["vocab"][content] = n_names + index
        added = {"id": n_names + index, **added_token(content, normalized=index == 0)}
        table["added_tokens"].append(added)
    return json.dumps(table).encode()


@cache
def both(pattern="clip"):
    return pair_of(json.loads(clip(pattern)))


words = st.sampled_from(
    [*"".join(CORPUS).split(), "<|startoftext|>", "<|STARTOFTEXT|>", "</w", "w>"]
)
texts = st.one_of(trap_texts, st.lists(words, max_size=8).map(" ".join))
patterns = st.sampled_from(["clip", "byte-level"])


@given(pattern=patterns, text=texts)
def test_ids_offsets_and_decoded_texts(pattern, text):
    theirs, ours = both(pattern)
    check_against_tokenizers(theirs, ours, text)
    expected = theirs.encode(text).ids
    for tokenizer in ours:
        assert tokenizer.decode(expected) == theirs.decode(expected, skip_special_tokens=False)
        assert check_text(tokenizer, text).first_difference is None
    check_parts(tokenizer, text, 4)


@pytest.mark.parametrize("pattern", ["clip", "byte-level"])
def test_written_files_and_manifests_give_the_same(pattern):
    _, (ours, *_) = both(pattern)
    spec = ours.spec
    theirs = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    assert theirs.encode(CORPUS[1]).ids == ours.encode(CORPUS[1])
    assert spec.alphabet.word_suffix == b"</w>"
    assert list_extensions(spec).keys() >= {"word_suffix", "normalizer_steps", "added_token_flags"}
    decoded = ours.decode(ours.encode("the\n\nFOX's"))
    assert decoded == "the</w>fox</w>'s</w>" or pattern != "clip"


def test_long_words_are_merged_in_windows():
    theirs, ours = both()
    for n_letters in (WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 5):
        text = ("thefoxcat" * n_letters)[:n_letters]
        expected = [theirs.encode(text).ids] * len(ours)
        assert [tokenizer.encode(text) for tokenizer in ours] == expected


def test_no_token_that_a_text_gives_counts_as_unreachable():
    _, (tokenizer, *_) = both("byte-level")
    unreachable = {token.id for token in unreachable_tokens(tokenizer)}
    given_ids = {id_ for text in CORPUS for id_ in tokenizer.encode(text)}
    assert not given_ids & unreachable


TABLE = json.loads(clip())
ENDING = {"id": TABLE["model"]["vocab"]["~</w>"], **added_token("~</w>")}


def without(text, *, other=None):
    """The file without an entry, which may get another name."""
    table = copy.deepcopy(TABLE)
    texts = [other if entry == text else entry for entry in table["model"]["vocab"]]
    table["model"]["vocab"] = {entry: id_ for id_, entry in enumerate(filter(None, texts))}
    for token in table["added_tokens"]:
        token["id"] = table["model"]["vocab"][token["content"]]
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (without("~</w>", other="~~"), "end of a word"),
        (changed(TABLE, "added_tokens.1", ENDING), "end of a word"),
        (without("~"), r"end_of_word_suffix.*lacks the byte 0x7e"),
        (changed(TABLE, "model.ignore_merges", True), "ignore_merges"),
        (changed(TABLE, "model.end_of_word_suffix", "é"), "end_of_word_suffix"),
        (changed(TABLE, "model.end_of_word_suffix", " x"), "end_of_word_suffix"),
    ],
)
def test_a_suffix_needs_all_bytes_and_ends_and_no_whole_words(table, message):
    check_refusal(table, message)


def test_a_suffix_beside_missing_bytes_is_refused():
    spec = parse_tokenizer_json(clip())
    vocab = {id_: token for id_, token in spec.vocab.items() if token != b"~"}
    lacking = dataclasses.replace(spec.alphabet, missing=MissingBytes((0x7E,)))
    broken = dataclasses.replace(spec, vocab=vocab, alphabet=lacking)
    with pytest.raises(InvalidSpecError, match=r"word_suffix.*no missing bytes"):
        broken.check()


def test_a_text_with_suffixes_comes_back_without_a_normalizer_too():
    theirs, (tokenizer, *_) = pair_of({**json.loads(clip("byte-level")), "normalizer": None})
    assert tokenizer.spec.normalizer.name == "none"
    text = "A photo <|startoftext|>x"
    assert check_text(tokenizer, text).first_difference is None
    decoded = theirs.decode(theirs.encode(text).ids, skip_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode(text)) == decoded != text
