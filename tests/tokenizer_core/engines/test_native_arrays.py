"""Arrays of ids from the native engine: their memory is reused, but only after they are freed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.native_module import native_module
from tokenizer_core.engines import create_engine
from tokenizer_core.spec import TokenizerSpec

BYTES = {i: bytes([i]) for i in range(256)}
LARGE = 600_000


@pytest.fixture(scope="module")
def engine():
    native_module()
    return create_engine(TokenizerSpec.from_merges(BYTES, []), "native")


def text_of(number):
    """Texts with pairwise different ids."""
    return f"{number:08} " * (LARGE // 9)


def ids_of(number):
    return np.frombuffer(text_of(number).encode(), dtype=np.uint8)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_arrays_that_live_keep_their_ids(engine, num_threads):
    kept = [engine.encode_to_numpy(text_of(0), num_threads)]
    views = []
    for number in range(1, 6):
        array = engine.encode_to_numpy(text_of(number), num_threads)
        assert not any(np.shares_memory(array, other) for other in kept)
        # Of every second array a part stays, which keeps the whole array alive.
        if number % 2:
            kept.append(array)
        else:
            views.append((number, array[1000:-1000:3]))
        del array
    for place, number in enumerate([0, 1, 3, 5]):
        np.testing.assert_array_equal(kept[place], ids_of(number))
    for number, view in views:
        np.testing.assert_array_equal(view, ids_of(number)[1000:-1000:3])


PAGES = """
import os, resource
from tests.tokenizer_core.engines.test_native_arrays import BYTES
from tokenizer_core.engines import create_engine
from tokenizer_core.spec import TokenizerSpec

engine = create_engine(TokenizerSpec.from_merges(BYTES, []), "native")
texts = ["0123 " * n for n in ({sizes})]
for text in 3 * texts:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array = engine.encode_to_numpy(text)
    n_pages = array.nbytes // os.sysconf("SC_PAGE_SIZE")
    del array
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults, n_pages)
"""


@pytest.mark.parametrize("sizes", ["380_000, 370_000", "20_000, 19_000"])
def test_memory_of_arrays_that_are_gone_serves_others(engine, sizes):
    # Otherwise the allocator might keep the memory.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(
        [sys.executable, "-c", PAGES.format(sizes=sizes)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    faults, n_pages = map(int, done.stdout.split())
    assert faults < n_pages / 4


def test_arrays_may_be_written_to_and_lists_and_batches_use_the_same_memory(engine):
    for number in range(3):
        array = engine.encode_to_numpy(text_of(number))
        array[:] = 7
        del array
        listed = engine.encode(text_of(number))
        assert listed == ids_of(number).tolist()
        batch, offsets = engine.encode_batch_to_numpy([text_of(number), "a", text_of(9)])
        lists = engine.encode_batch([text_of(number), "b"])
        np.testing.assert_array_equal(batch[: offsets[1]], ids_of(number))
        assert batch[offsets[1]] == ord("a")
        assert lists == [ids_of(number).tolist(), [ord("b")]]


def test_threads_that_take_and_leave_arrays_get_their_own_ids(engine):
    def work(number):
        array = engine.encode_to_numpy(text_of(number))
        return np.array_equal(array, ids_of(number))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(60)))


def test_texts_of_many_sizes_in_any_order_fit_what_was_kept(engine):
    sizes = [131_071, 131_072, 2_000_000, 140_000, 500_000, 131_072, 3_000_000, 150_000]
    for size in sizes * 2:
        text = ("0123456789" * (size // 10 + 1))[:size]
        array = engine.encode_to_numpy(text)
        np.testing.assert_array_equal(array, np.frombuffer(text.encode(), dtype=np.uint8))
        assert array.nbytes == 4 * size
