"""Whether texts and ids round-trip, and the first position where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.trap_texts import kinds, patterns, seeds, short_trap_texts, tiny_spec
from tokenizer_core import Tokenizer
from tokenizer_core.engines import StopFlag, make_stop_flag, stoppable
from tokenizer_core.errors import CancelledError, SpecialTokenForbiddenError
from tokenizer_core.text.round_trips import (
    _first_difference,
    check_text,
)

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


class CancelledBy(Tokenizer):
    """Another thread cancels the call while this step of it runs."""

    def __init__(self, step: str, flag: StopFlag) -> None:
        super().__init__(VOCAB, MERGES[:1], engine="python")
        self.step, self.flag, self.steps = step, flag, []

    def encode_to_numpy(self, text, **options):
        return self._end("encode", super().encode_to_numpy(text, **options))

    def decode(self, ids, **options):
        return self._end("decode", super().decode(ids, **options))

    def _end(self, step, result):
        self.steps.append(step)
        if step == self.step:
            self.flag.cancel()
        return result


@pytest.mark.parametrize(
    ("check", "value", "step", "steps"),
    [
        (check_text, "abc", "encode", ["encode"]),
        (check_text, "abc", "decode", ["encode", "decode"]),
        (Tokenizer.first_drift, ids_of(97, 98), "decode", ["decode"]),
        (Tokenizer.first_drift, ids_of(97, 98), "encode", ["decode", "encode"]),
    ],
)
def test_a_cancelled_check_ends_after_its_step(check, value, step, steps):
    flag = make_stop_flag()
    tokenizer = CancelledBy(step, flag)
    with stoppable(flag), pytest.raises(CancelledError):
        check(tokenizer, value)
    assert tokenizer.steps == steps


def test_a_cancelled_check_compares_no_further():
    flag = make_stop_flag()
    flag.cancel()
    with stoppable(flag), pytest.raises(CancelledError):
        _first_difference("ab", "ac")
