"""The native engine with threads, processes and each instruction set."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tests.adversarial import adversarial_texts
from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tests.property.trap_texts import KINDS, tiny_spec
from tests.tokenizer_core.engines.test_native_engine import spec_from_corpus
from tokenizer_core import Tokenizer
from tokenizer_core.engines import ARRAY, COUNT, create_engine
from tokenizer_core.engines.native_training import NativeCounts
from tokenizer_core.splitting.patterns import PATTERNS

LONG = "".join(f"as{i:x} ſé中 {i * 7919:o}\n" for i in range(80_000))


@pytest.fixture(scope="module")
def tokenizer():
    native_module()
    return Tokenizer.from_spec(tiny_spec(3, "merges", "o200k"), engine="native")


@pytest.fixture
def no_forced_switch():
    """Until the test ends, a thread gives up the GIL only voluntarily."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(interval)


def test_long_calls_give_the_gil_up(tokenizer, no_forced_switch):
    # Only the call itself can let this thread run between the two marks: if the GIL were held
    # throughout, it would see the second one every time, however slow or busy the machine is.
    def was_released(work):
        marks = []

        def run():
            marks.append("begun")
            work()
            marks.append("done")

        thread = threading.Thread(target=run)
        thread.start()
        seen = list(marks)
        thread.join()
        return seen == ["begun"]

    engine, ids = tokenizer.engine, tokenizer.encode_to_numpy(LONG)
    counts = NativeCounts.of({f"{i:o}x{i:x}": 1 for i in range(60_000)})
    for work in (
        lambda: engine.encode(LONG),
        lambda: engine.encode(LONG, None, ARRAY._replace(num_threads=2)),
        lambda: engine.encode_pre_tokens([LONG[:200_000]] * 9),
        lambda: engine.encode(LONG, None, COUNT),
        lambda: engine.decode(ids, None),
        lambda: counts.learn(300, "lexicographic", None),
    ):
        assert any(was_released(work) for _ in range(20))


def in_child(work):
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

    def keep_busy():
        while not stop.is_set():
            assert np.array_equal(tokenizer.encode_to_numpy(part, num_threads=2), expected_long)

    def work():
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


def compare():
    """Compares the engines in this process; prints its kernel in the last line."""
    texts = adversarial_texts(n_random=60, seed=31)
    texts += ["x" * n + text for n, text in enumerate(texts[:70])]
    texts.append("".join(texts) * 5)
    for pattern, kind in zip(PATTERNS, itertools.cycle(KINDS), strict=False):
        spec = spec_from_corpus(kind, pattern)
        native, python = create_engine(spec, "native"), create_engine(spec, "python")
        for text in texts:
            ids = python.encode(text)
            assert [native.encode(text) for _ in range(2)] == [ids] * 2, (pattern, kind, text)
            assert native.encode(text, None, COUNT) == len(ids)
    print(native_module().KERNEL)


@pytest.mark.parametrize("kernel", ["avx512", "avx2", "portable"])
def test_a_kernel_gives_the_ids_of_the_python_engine(kernel):
    native_module()
    ran = subprocess.run(
        [sys.executable, "-c", f"from {compare.__module__} import compare; compare()"],
        cwd=REPOSITORY,
        env=os.environ | {"TOKENIZER_KERNEL": kernel},
        capture_output=True,
        text=True,
    )
    if f"TOKENIZER_KERNEL is {kernel}, which this processor does not have" in ran.stderr:
        pytest.skip(f"this processor has no {kernel}")
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split()[-1] == kernel
