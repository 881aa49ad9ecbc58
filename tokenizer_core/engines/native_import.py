"""Loads the compiled module, and says why it cannot run here.

Only this module imports `tokenizer_core._native`. The others take it from here as `native`, and use
it after `unavailable_reason` has returned None.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tokenizer_core.errors import EngineUnavailableError

try:
    import tokenizer_core._native as native
except ImportError as error:
    native = None  # type: ignore[assignment]
    _import_error: ImportError | None = error
else:
    _import_error = None

__all__ = ["check_kernel", "is_installed", "native", "unavailable_reason"]

_MODULE: Final = "tokenizer_core._native"
_STUB_PATH: Final = Path(__file__).parent.parent / "_native.pyi"
_KERNEL_VARIABLE: Final = "TOKENIZER_KERNEL"
_KERNELS: Final = ("avx512", "avx2", "neon", "portable")


def _is_stale(stub_path: Path) -> bool:
    """Whether the module was compiled for a different version of this Python code.

    The stub is the contract between the two. Comparing it makes a version number unnecessary. The
    comparison ignores line endings, which may differ in a checkout. Without an installed stub, the
    module and its callers came in one package.
    """
    try:
        stub = stub_path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    # A module compiled before `STUB` existed does not have it.
    return getattr(native, "STUB", "").splitlines() != stub.splitlines()


# Compare once, at import: this process keeps its code even if another version is checked out.
_stale: Final = _import_error is None and _is_stale(_STUB_PATH)

# Read once, at import, because the compiled module chooses its kernel then.
_asked_kernel: Final = os.environ.get(_KERNEL_VARIABLE, "")


def is_installed() -> bool:
    """Whether the compiled module is in this installation, whether or not it can run."""
    return not (isinstance(_import_error, ModuleNotFoundError) and _import_error.name == _MODULE)


def unavailable_reason() -> str | None:
    """The reason why the native engine cannot run here, for readers; None if it can."""
    if not is_installed():
        return (
            f"the compiled module {_MODULE} is not in this installation: it was installed without "
            "a Rust toolchain, or the build failed. Install it again with "
            "TOKENIZER_REQUIRE_NATIVE=1 in the environment to see why"
        )
    if _import_error is not None:
        # The loader's message begins with the path of the file, which the service must not publish.
        message = str(_import_error).replace(f"{_import_error.path}: ", "")
        return f"the compiled module {_MODULE} does not load: {message}"
    if _stale:
        return (
            f"the compiled module {_MODULE} was built for another version of this code and its "
            "calls may differ. Build it again: `make setup` in a checkout, elsewhere install the "
            "package again"
        )
    return None


def check_kernel(*, is_used: bool) -> None:
    """Check the kernel that TOKENIZER_KERNEL names. `is_used`: whether the native engine runs.

    Raises:
        EngineUnavailableError: there is no such kernel, or this processor does not have the one
            that is to run.
    """
    if _asked_kernel not in ("", *_KERNELS):
        raise EngineUnavailableError(
            f"{_KERNEL_VARIABLE} names no kernel: it is {_asked_kernel!r:.40}, and may be "
            f"{', '.join(_KERNELS[:-1])} or {_KERNELS[-1]}; unset it for the fastest one"
        )
    # The compiled module would run its fastest kernel, and a comparison would compare it with
    # itself.
    if is_used and _asked_kernel and _asked_kernel != native.KERNEL:
        raise EngineUnavailableError(
            f"{_KERNEL_VARIABLE} is {_asked_kernel}, which this processor does not have; its "
            f"fastest is {native.KERNEL}, which runs if the variable is unset"
        )
