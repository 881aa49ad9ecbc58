"""A flag that another thread sets ends a call, within one long pre-token and in batch threads."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.native_module import native_module
from tests.tokenizer_core.engines.random_specs import spec_of
from tokenizer_core.engines import create_engine, make_stop_flag, stoppable
from tokenizer_core.errors import CancelledError
from tokenizer_core.patterns import SplitPattern

SPEC = spec_of([(b"a", b"a"), (b"aa", b"aa"), (b"b", b"c")])


def test_a_long_call_of_another_thread_is_cancelled():
    native_module()
    engine = create_engine(SPEC, "native")
    engine.encode("the first call makes tables")
    text = "abc" * (32 << 20)
    for call in (engine.encode, lambda text: engine.encode_batch_to_numpy([text, text], 2)):
        flag = make_stop_flag()
        threading.Timer(0.1, flag.cancel).start()
        with stoppable(flag), pytest.raises(CancelledError):
            call(text)


def test_a_search_of_a_foreign_expression_is_cancelled(engine):
    # Quadratic in a run of a; the lookbehind keeps it from having an automaton.
    slow = SplitPattern("custom", "(?<!x)a+b|c", "fancy-regex", "drop")
    flag, slow_engine = make_stop_flag(), create_engine(replace(SPEC, pattern=slow), engine)
    threading.Timer(0.1, flag.cancel).start()
    with stoppable(flag), pytest.raises(CancelledError):
        slow_engine.encode("a" * 1_000_000)  # its time would end after 22 s, with SplitTooSlowError


def test_only_calls_inside_the_context_are_cancelled(engine):
    engine, flag, outer = create_engine(SPEC, engine), make_stop_flag(), make_stop_flag()
    expected = engine.encode("aaa bc")
    with stoppable(outer):
        with stoppable(flag):
            assert engine.encode("aaa bc") == expected
            flag.cancel()
            for call in (engine.encode, engine.count, engine.encode_to_numpy):
                with pytest.raises(CancelledError):
                    call("aaa bc" * 100_000)
        assert (flag.is_cancelled, outer.is_cancelled) == (True, False)
        assert np.array_equal(engine.encode_to_numpy("aaa bc"), expected)
    assert engine.encode("aaa bc") == expected
