"""Batches over several processes."""

import pytest

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.test_tokenizer import tokenizer
from tokenizer_core.errors import SpecialTokenForbiddenError

__all__ = ["tokenizer"]


def test_batches_over_processes_equal_batches_in_one(tokenizer):
    texts = [text * 200 for text in adversarial_texts(n_random=80, seed=3)[:60]]
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts, num_threads=2) == expected
    plain = tokenizer.encode_batch(texts, num_threads=3, allowed_special="none")
    assert plain == [tokenizer.encode(text, allowed_special="none") for text in texts]
    with pytest.raises(SpecialTokenForbiddenError):
        tokenizer.encode_batch(
            [*texts, "<|end|>"], num_threads=2, allowed_special="none", disallowed_special="all"
        )
