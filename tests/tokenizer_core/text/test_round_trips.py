"""Whether texts and ids round-trip, and the first position where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.trap_texts import kinds, patterns, seeds, short_trap_texts, tiny_spec
from tokenizer_core import Tokenizer
from tokenizer_core.engines import make_stop_flag, stoppable
from tokenizer_core.errors import CancelledError, SpecialTokenForbiddenError
from tokenizer_core.text.round_trips import _first_difference, check_text

VOCAB = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: "中".encode()}
MERGES = [(b"a", b"b"), (b"\xe4\xb8", b"\xad")]


def ids_of(*ids: int) -> np.ndarray:
    return np.array(ids, dtype=np.uint32)


@given(
    seeds, kinds, patterns, st.sampled_from(["none", "nfc"]), short_trap_texts,
    st.sampled_from(["all", "none"]),
)  # fmt: skip
def test_every_text_comes_back_and_so_do_its_ids(
    engine, seed, kind, pattern, normalizer, text, policy
):
    tokenizer = Tokenizer.from_spec(tiny_spec(seed, kind, pattern, normalizer), engine=engine)
    assert check_text(tokenizer, text, allowed_special=policy).first_difference is None
    if normalizer == "none":
        ids = tokenizer.encode_to_numpy(text, allowed_special=policy)
        assert tokenizer.first_drift(ids, allowed_special=policy) is None


def test_a_longer_or_shorter_answer_differs_at_its_end(engine, monkeypatch):
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], engine=engine)
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "xyz")
    assert tokenizer.first_drift(ids_of(120, 121)) == 2
    assert tokenizer.first_drift(ids_of(120, 121, 122, 123)) == 3
    assert check_text(tokenizer, "xy").first_difference == 2
    assert check_text(tokenizer, "xyz!").first_difference == 3
    assert check_text(tokenizer, "xéz").first_difference == 1
    long = "a" * 70_000
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: long + "b" + long)
    assert check_text(tokenizer, long + "c" + long).first_difference == 70_000


def test_a_forbidden_special_token_is_an_error(engine):
    tokenizer = Tokenizer(VOCAB, [(b"a", b"b")], ["<|a|>"], engine=engine)
    options = {"allowed_special": "none", "disallowed_special": "all"}
    with pytest.raises(SpecialTokenForbiddenError):
        check_text(tokenizer, "x<|a|>", **options)
    with pytest.raises(SpecialTokenForbiddenError):
        tokenizer.first_drift(ids_of(258), **options)


@pytest.mark.parametrize(
    ("check", "value", "steps"),
    [
        (check_text, "abc", ["encode_to_numpy", "decode"]),
        (Tokenizer.first_drift, ids_of(97, 98), ["decode", "encode_to_numpy"]),
    ],
)
def test_a_cancelled_check_ends_after_its_step(check, value, steps, monkeypatch):
    for n_steps in (1, 2):
        flag, done = make_stop_flag(), []

        def step(name, flag=flag, done=done, last=steps[n_steps - 1]):
            method = getattr(Tokenizer, name)

            def run(*given, **options):
                done.append(name)
                result = method(*given, **options)
                if name == last:
                    flag.cancel()
                return result

            return run

        with monkeypatch.context() as patch, stoppable(flag):
            for name in steps:
                patch.setattr(Tokenizer, name, step(name))
            with pytest.raises(CancelledError):
                check(Tokenizer(VOCAB, MERGES[:1], engine="python"), value)
        assert done == steps[:n_steps]


def test_a_cancelled_check_compares_no_further():
    flag = make_stop_flag()
    flag.cancel()
    with stoppable(flag), pytest.raises(CancelledError):
        _first_difference("ab", "ac")
