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
WAYS = {
    "encode": lambda engine, text: engine.encode(text),
    "encode_batch": lambda engine, text: engine.encode_batch_to_numpy([text, text], 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_long_call_of_another_thread_is_cancelled(way):
    native_module()
    engine, flag = create_engine(SPEC, "native"), make_stop_flag()
    engine.encode("the first call makes tables")
    text = "abc" * (32 << 20)
    threading.Timer(0.1, flag.cancel).start()
    with stoppable(flag), pytest.raises(CancelledError):
        WAYS[way](engine, text)


@pytest.mark.parametrize("name", ["native", "python"])
def test_a_search_of_a_foreign_expression_is_cancelled(name):
    if name == "native":
        native_module()
    # Quadratic in a run of a; the lookbehind keeps it from having an automaton.
    slow = SplitPattern("custom", "(?<!x)a+b|c", "fancy-regex", "drop")
    engine, flag = create_engine(replace(SPEC, pattern=slow), name), make_stop_flag()
    threading.Timer(0.1, flag.cancel).start()
    with stoppable(flag), pytest.raises(CancelledError):
        engine.encode("a" * 1_000_000)  # its time would end after 22 s, with SplitTooSlowError


@pytest.mark.parametrize("name", ["native", "python"])
def test_only_calls_inside_the_context_are_cancelled(name):
    if name == "native":
        native_module()
    engine, flag, outer = create_engine(SPEC, name), make_stop_flag(), make_stop_flag()
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
