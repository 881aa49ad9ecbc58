"""The ids are the same with every instruction set, not only with this machine's best."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.adversarial import adversarial_texts
from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tests.property.trap_texts import KINDS
from tests.tokenizer_core.engines.test_native_engine import spec_from_corpus
from tokenizer_core.engines import create_engine
from tokenizer_core.patterns import PATTERNS


def compare() -> None:
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
            assert native.count(text) == len(ids)
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
