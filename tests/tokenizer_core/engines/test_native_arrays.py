"""Arrays of ids from the native engine: their memory is reused, but only after they are freed."""

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
def test_arrays_in_use_keep_their_ids(engine, num_threads):
    kept = [engine.encode_to_numpy(text_of(0), num_threads)]
    views = []
    for number in range(1, 6):
        array = engine.encode_to_numpy(text_of(number), num_threads)
        assert not any(np.shares_memory(array, other) for other in kept)
        # A view keeps the whole array alive.
        if number % 2:
            kept.append(array)
        else:
            views.append((number, array[1000:-1000:3]))
        del array
    for array, number in zip(kept, [0, 1, 3, 5], strict=True):
        np.testing.assert_array_equal(array, ids_of(number))
    for number, view in views:
        np.testing.assert_array_equal(view, ids_of(number)[1000:-1000:3])


def test_arrays_may_be_written_to_and_lists_and_batches_use_the_same_memory(engine):
    for number in range(2):
        array = engine.encode_to_numpy(text_of(number))
        array[:] = 7
        del array
        assert engine.encode(text_of(number)) == ids_of(number).tolist()
        batch, offsets = engine.encode_batch_to_numpy([text_of(number), "a", text_of(9)])
        lists = engine.encode_batch([text_of(number), "b"])
        np.testing.assert_array_equal(batch[: offsets[1]], ids_of(number))
        assert batch[offsets[1]] == ord("a")
        assert lists == [ids_of(number).tolist(), [ord("b")]]
