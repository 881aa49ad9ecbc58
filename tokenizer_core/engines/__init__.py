"""Engines compute ids. Which one runs is chosen here, in one place, and every one is exact.

`auto` takes the fastest engine of this installation. This release has one, `python`; a name that
is known but not installed is an error, never a silent fallback.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tokenizer_core.engines.protocol import CacheStatistics, Engine
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

__all__ = ["CacheStatistics", "Engine", "create_engine", "resolve_engine"]

ENGINE_VARIABLE: Final = "TOKENIZER_ENGINE"


def resolve_engine(engine: str = "auto") -> str:
    """The name of the engine that runs for `auto`, `python` or `native`.

    `auto` asks the environment variable TOKENIZER_ENGINE first.

    Raises:
        EngineUnavailableError: an engine this installation does not have.
        ValueError: a name that is no engine.
    """
    asked = os.environ.get(ENGINE_VARIABLE, "auto") or "auto" if engine == "auto" else engine
    if asked in ("auto", "python"):
        return "python"
    if asked == "native":
        raise EngineUnavailableError(
            "the native engine is not part of this release; use engine='auto' or 'python' "
            f"(or unset {ENGINE_VARIABLE})"
        )
    raise ValueError(f"unknown engine {asked!r:.40}: auto, python or native")


def create_engine(spec: TokenizerSpec, engine: str = "auto") -> Engine:
    """An engine for `spec`; see `resolve_engine` for the names and what is raised."""
    resolve_engine(engine)
    return PythonEngine(spec)
