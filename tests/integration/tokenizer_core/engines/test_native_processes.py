"""The native engine with threads and processes: the GIL, many callers, fork during use, spawn."""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tests.adversarial import adversarial_texts
from tests.native_module import native_module
from tests.property.trap_texts import tiny_spec
from tokenizer_core import Tokenizer
from tokenizer_core.engines.native import NativeCounts

LONG = "".join(f"as{i:x} ſé中 {i * 7919:o}\n" for i in range(80_000))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    native_module()
    return Tokenizer.from_spec(tiny_spec(3, "merges", "o200k"), engine="native")


@pytest.fixture
def no_forced_switch() -> Iterator[None]:
    """Until the test ends, a thread gives up the GIL only voluntarily."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(interval)


def long_calls(tokenizer: Tokenizer) -> dict[str, Callable[[], object]]:
    engine = tokenizer.engine
    ids = tokenizer.encode_to_numpy(LONG)
    pre_tokens = [LONG[:200_000]] * 9
    counts = NativeCounts.of({f"{i:o}x{i:x}": 1 for i in range(60_000)})
    return {
        "encode": lambda: engine.encode(LONG),
        "encode_to_numpy": lambda: engine.encode_to_numpy(LONG),
        "encode with threads": lambda: engine.encode_to_numpy(LONG, 2),
        "encode_pre_tokens": lambda: engine.encode_pre_tokens(pre_tokens),
        "count": lambda: engine.count(LONG),
        "decode_bytes": lambda: engine.decode_bytes(ids),
        "learn": lambda: counts.learn(300, "lexicographic", None),
    }


def test_long_calls_give_the_gil_up(tokenizer, no_forced_switch):
    # Only the call itself can let this thread run between the two marks: if the GIL were held
    # throughout, it would see the second one every time, however slow or busy the machine is.
    def was_released(work: Callable[[], object]) -> bool:
        marks: list[str] = []

        def run() -> None:
            marks.append("begun")
            work()
            marks.append("done")

        thread = threading.Thread(target=run)
        thread.start()
        seen = list(marks)
        thread.join()
        return seen == ["begun"]

    held = [
        name
        for name, work in long_calls(tokenizer).items()
        if not any(was_released(work) for _ in range(20))
    ]
    assert held == []


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked child that does `work`, killed after a minute."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_threads_encode_works(tokenizer):
    texts = adversarial_texts(n_random=40, seed=8)
    expected = [tokenizer.encode(text) for text in texts]
    part = LONG[:1_200_000]
    expected_long = tokenizer.encode_to_numpy(part)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            assert np.array_equal(tokenizer.encode_to_numpy(part, num_threads=2), expected_long)

    def work() -> None:
        for _ in range(3):
            for text, ids in zip(texts, expected, strict=True):
                assert tokenizer.encode(text) == ids
        assert np.array_equal(tokenizer.encode_to_numpy(part, num_threads=3), expected_long)
        assert tokenizer.decode_bytes(expected_long) == part.encode()

    # More threads than there are caches on most machines, so that some are in use at the fork.
    with ThreadPoolExecutor(6) as pool:
        busy = [pool.submit(keep_busy) for _ in range(6)]
        try:
            assert [in_child(work) for _ in range(4)] == [0] * 4
        finally:
            stop.set()
        for thread in busy:
            thread.result()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_tokenizer_is_sent_to_other_processes(method, tokenizer):
    text = "".join(adversarial_texts(n_random=40, seed=6))
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        answers = [pool.submit(tokenizer.encode, text[place:]) for place in range(4)]
        described = pool.submit(repr, tokenizer)
        for place, answer in enumerate(answers):
            assert answer.result(60) == tokenizer.encode(text[place:])
        assert "native engine" in described.result(60)
