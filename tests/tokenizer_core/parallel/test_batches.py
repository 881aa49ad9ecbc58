"""Many texts in one call, and one text of many documents: the same ids as one by one."""

from itertools import pairwise

import numpy as np
import pytest

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.every_way import check_every_way
from tests.tokenizer_core.test_tokenizer import BYTES, MERGES, VOCAB
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.engines import DOCUMENTS, Wanted
from tokenizer_core.errors import SpecialTokenForbiddenError
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.spec import AddedToken
from tokenizer_core.specials.matcher import SpecialTokenMatcher

ADDED = [
    AddedToken("<|endoftext|>", 300),
    AddedToken("<|endoftext|><|endoftext|>", 301),
    AddedToken("<", 302),
    AddedToken("<think>", 303, special=False),
    AddedToken("é", 304),
]
AROUND = {"prefix_ids": (302, 300), "suffix_ids": (303,)}
TEXTS = [*adversarial_texts(n_random=80, seed=11), "", "é<\u0338é", "<think", "<" * 50, ""]


@pytest.fixture(scope="module", params=["gpt2 none", "qwen2 nfc", "o200k none", r"\w+|\W none"])
def tokenizer(request, engine):
    pattern, normalizer = request.param.split(" ")
    spec = TokenizerSpec.from_merges(
        VOCAB, MERGES, ADDED, pattern=pattern, normalizer=normalizer, **AROUND
    )
    return Tokenizer.from_spec(spec, engine=engine)


def encode_by_segments(tokenizer, text, allowed):
    """The definition: cut, normalize, encode each segment as plain text."""
    ids = []
    table = {token.content: token.id for token in ADDED}
    for plain, token in SpecialTokenMatcher(allowed | {"<think>"}).split(text):
        is_nfc = tokenizer.spec.normalizer.name == "nfc"
        ids += tokenizer.engine.encode(normalize_nfc(plain) if is_nfc else plain)
        ids += [table[token]] if token is not None else []
    return ids


@pytest.mark.parametrize("allowed", ["all", "none", ("<", "é")])
def test_every_form_equals_encoding_the_segments(tokenizer, allowed):
    special = {token.content for token in ADDED if token.special}
    names = {"all": special, "none": set()}.get(allowed) if isinstance(allowed, str) else allowed
    expected = [encode_by_segments(tokenizer, text, set(names)) for text in TEXTS]
    check_every_way(tokenizer, TEXTS, expected, allowed_special=allowed)
    around = [[302, 300, *ids, 303] for ids in expected]
    check_every_way(tokenizer, TEXTS, around, allowed_special=allowed, add_special_tokens=True)
    ids, offsets = tokenizer.encode_batch_to_numpy([], add_special_tokens=True)
    assert (ids.tolist(), offsets.tolist()) == ([], [0])


@pytest.mark.parametrize(
    ("around", "narrow"), [((None, None), True), ((None, 300), False), ((301, 65535), True)]
)
def test_documents_stand_between_their_ids(tokenizer, around, narrow):
    before, behind = (() if id_ is None else (id_,) for id_ in around)
    engine, matcher = tokenizer.engine, SpecialTokenMatcher(["<", "<|endoftext|>"])
    wanted = Wanted("documents", prefix_ids=before, suffix_ids=behind, as_uint16=narrow)
    expected = [[*before, *engine.encode(text, matcher), *behind] for text in TEXTS]
    data = [text.encode() for text in TEXTS]
    ids, offsets, n_bytes = engine.encode_batch(data, matcher, wanted)
    assert (ids.dtype, offsets.dtype) == (np.uint16 if narrow else np.uint32, np.uint64)
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
    assert n_bytes.tolist() == list(map(len, data))
    ids, offsets, _ = engine.encode_batch([], None, wanted)
    assert (ids.tolist(), offsets.tolist()) == ([], [0])


def test_documents_that_are_not_utf8_are_refused(tokenizer):
    for broken in (b"\xff", b"a\xed\xa0\x80", b"\xc3"):
        with pytest.raises(UnicodeDecodeError) as caught:
            tokenizer.engine.encode_batch([b"a", broken, b"b"], None, DOCUMENTS)
        assert caught.value.object == broken


def test_ids_that_are_not_narrow_never_become_others(engine):
    vocab = {**BYTES, 65536: b"ab"}
    tokenizer = Tokenizer(vocab, [(b"a", b"b")], engine=engine)
    narrow = DOCUMENTS._replace(as_uint16=True)
    assert tokenizer.engine.encode_batch([b"ac"], None, narrow).ids.tolist() == [97, 99]
    with pytest.raises(ValueError, match="two bytes"):
        tokenizer.engine.encode_batch([b"ab"], None, narrow)


def test_the_first_text_that_fails_decides_the_error(tokenizer):
    options = {"allowed_special": "none", "disallowed_special": ["<"]}
    for encode in (tokenizer.encode_batch, tokenizer.encode_batch_to_numpy):
        with pytest.raises(SpecialTokenForbiddenError):
            encode(["a", "<", "\ud800"], **options)
        with pytest.raises(UnicodeEncodeError):
            encode(["a", "\ud800", "<"], **options)
        with pytest.raises(ValueError, match="does not have"):
            encode(["a"], allowed_special=["<|nope|>"])
        with pytest.raises(TypeError, match="list of strings"):
            encode("text")


def test_many_policies_are_served_and_forgotten(engine):
    added = [AddedToken(f"<|{i}|>", 300 + i) for i in range(200)]
    tokenizer = Tokenizer.from_spec(TokenizerSpec.from_merges(VOCAB, [], added), engine=engine)
    text = "".join(token.content for token in added)
    for _ in range(2):
        for token in added:
            assert token.id in tokenizer.encode(text, allowed_special={token.content})
    assert tokenizer.encode(text) == [token.id for token in added]
