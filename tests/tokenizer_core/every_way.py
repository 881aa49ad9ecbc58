"""Every way to encode gives the ids of `encode`: one check for any tokenizer."""

import json
from itertools import pairwise

import numpy as np

from tokenizer_core import Tokenizer


def check_every_way(
    tokenizer: Tokenizer, texts: list[str], expected: list[list[int]], **options: object
) -> None:
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, **options) == ids
        array = tokenizer.encode_to_numpy(text, num_threads=2, **options)
        assert (array.dtype, array.tolist()) == (np.uint32, ids)
        rendered, n_ids = tokenizer.encode_to_json(text, **options)
        assert (json.loads(rendered), n_ids) == (ids, len(ids))
        assert tokenizer.encode_with_offsets(text, **options)[0] == ids
        assert tokenizer.count(text, **options) == len(ids)
        assert tokenizer.count(text, limit=len(ids), **options) == len(ids)
        if ids:
            assert tokenizer.count(text, limit=len(ids) - 1, **options) >= len(ids)
        half = len(text) // 2
        assert list(tokenizer.encode_iterable([text[:half], text[half:]], **options)) == ids
    assert tokenizer.encode_batch(texts, num_threads=2, **options) == expected
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, num_threads=2, **options)
    assert (ids.dtype, offsets.dtype, offsets.shape) == (np.uint32, np.uint64, (len(texts) + 1,))
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
