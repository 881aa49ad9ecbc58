"""Engines compute ids. Which one runs is chosen here, in one place, and every one is exact.

`python` is always there. `native` is there where its compiled module was built; it must be asked
for by name, in a call or in TOKENIZER_ENGINE, until the service's own tests have run on it as
well: `auto` is `python` for now. Asking for one that is not there is an error, never a silent
fallback; `native_unavailable_reason` says why it is not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tokenizer_core.engines.native_engine import NativeEngine
from tokenizer_core.engines.native_engine import unavailable_reason as native_unavailable_reason
from tokenizer_core.engines.protocol import CacheStatistics, Engine
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

__all__ = [
    "CacheStatistics",
    "Engine",
    "create_engine",
    "native_unavailable_reason",
    "resolve_engine",
]

ENGINE_VARIABLE: Final = "TOKENIZER_ENGINE"


def resolve_engine(engine: str = "auto") -> str:
    """The name of the engine that runs for `auto`, `python` or `native`.

    `auto` asks the environment variable TOKENIZER_ENGINE first.

    Raises:
        EngineUnavailableError: an engine this installation does not have.
        ValueError: a name that is no engine.
    """
    asked = os.environ.get(ENGINE_VARIABLE, "auto") or "auto" if engine == "auto" else engine
    if asked not in ("auto", "python", "native"):
        raise ValueError(f"unknown engine {asked!r:.40}: auto, python or native")
    if asked != "native":
        return "python"
    reason = native_unavailable_reason()
    if reason is not None:
        raise EngineUnavailableError(
            f"there is no native engine: {reason}. Or use engine='auto' or 'python' "
            f"(or unset {ENGINE_VARIABLE})"
        )
    return asked


def create_engine(spec: TokenizerSpec, engine: str = "auto") -> Engine:
    """An engine for `spec`; see `resolve_engine` for the names and what is raised."""
    return NativeEngine(spec) if resolve_engine(engine) == "native" else PythonEngine(spec)
