"""Engines compute ids. This module chooses which engine runs.

`auto` selects `native` if its compiled module is installed, and `python` otherwise. A request by
name for an engine that cannot run is an error, never a silent fallback. `choose_engine` returns the
engine and the reason.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from tokenizer_core.engines.native_calls import json_of_ids, read_json_natively
from tokenizer_core.engines.native_engine import NativeEngine
from tokenizer_core.engines.native_import import check_kernel, is_installed
from tokenizer_core.engines.native_import import unavailable_reason as native_unavailable_reason
from tokenizer_core.engines.native_stopping import make_stop_flag, stoppable
from tokenizer_core.engines.protocol import (
    ARRAY,
    ARRAYS,
    COUNT,
    DOCUMENTS,
    JSON,
    LIST,
    LISTS,
    Engine,
    Wanted,
)
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

__all__ = [
    "ARRAY",
    "ARRAYS",
    "COUNT",
    "DOCUMENTS",
    "JSON",
    "LIST",
    "LISTS",
    "Engine",
    "EngineChoice",
    "Wanted",
    "choose_engine",
    "create_engine",
    "json_of_ids",
    "make_stop_flag",
    "native_unavailable_reason",
    "read_json_natively",
    "stoppable",
]

ENGINE_VARIABLE: Final = "TOKENIZER_ENGINE"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that runs (`python` or `native`), and the reason, as a clause for readers.

    `native_unavailable` is the reason why the native engine cannot run here; None if it can.
    """

    name: str
    reason: str
    native_unavailable: str | None

    @property
    def is_fallback(self) -> bool:
        """Whether `auto` selected the Python engine because the native one cannot run."""
        return self.name == "python" and self.reason == self.native_unavailable


def choose_engine(engine: str = "auto") -> EngineChoice:
    """The engine that runs for `auto`, `python` or `native`, and why.

    `auto` reads the environment variable TOKENIZER_ENGINE first. If it is unset, `auto` selects
    `native` if the compiled module is installed and matches, and `python` otherwise.

    Raises:
        EngineUnavailableError: this installation does not have the engine, TOKENIZER_ENGINE names
            an unknown one, or TOKENIZER_KERNEL a kernel that is unknown or that this processor
            does not have.
        ValueError: `engine` names no engine.
    """
    asked = (os.environ.get(ENGINE_VARIABLE) or "auto") if engine == "auto" else engine
    if asked not in ("auto", "python", "native"):
        if engine == "auto":
            raise EngineUnavailableError(
                f"{ENGINE_VARIABLE} names no engine: it is {asked!r:.40}, and may be auto, native "
                f"or python"
            )
        raise ValueError(f"unknown engine {asked!r:.40}: auto, python or native")
    unavailable = native_unavailable_reason()
    check_kernel(is_used=asked != "python" and unavailable is None)
    if asked == "auto":
        if unavailable is None:
            return EngineChoice("native", "it is installed, and the faster one", None)
        return EngineChoice("python", unavailable, unavailable)
    if asked == "native" and unavailable is not None:
        raise EngineUnavailableError(
            f"there is no native engine: {unavailable}. Or use engine='auto' or 'python' "
            f"(or unset {ENGINE_VARIABLE})"
        )
    return EngineChoice(asked, "it was asked for by name", unavailable)


def create_engine(spec: TokenizerSpec, engine: str = "auto") -> Engine:
    """Create an engine for `spec`; see `choose_engine` for the names and the errors.

    The first time that `auto` selects the Python engine though the compiled module is installed,
    a RuntimeWarning gives the reason: the ids are the same, but computed many times slower.
    """
    choice = choose_engine(engine)
    if choice.is_fallback and is_installed():
        _warn_of_fallback(choice.reason)
    return NativeEngine(spec) if choice.name == "native" else PythonEngine(spec)


@cache
def _warn_of_fallback(reason: str) -> None:
    warnings.warn(
        f"the Python engine runs, many times slower than the native one, because {reason}. With "
        f"{ENGINE_VARIABLE}=python in the environment this warning stays away",
        RuntimeWarning,
        stacklevel=4,
    )
