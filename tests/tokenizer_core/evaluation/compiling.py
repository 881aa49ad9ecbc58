"""torch without the C++ compiler that its compiled models need."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def without_compiler() -> Iterator[None]:
    config = pytest.importorskip("torch._inductor.config")
    # torch's own `patch`: `monkeypatch` restores a setting of torch's by deleting it, and torch
    # remembers that, so that a second test in the process would find the setting gone.
    torch.compiler.reset()
    with config.patch({"cpp.cxx": (None, "/absent/c++"), "fx_graph_cache": False}):
        yield
