"""Deprecated alias of `tokenizer_core.registry`, kept for one release."""

import warnings

from tokenizer_core.registry import *  # noqa: F403 - the alias exports the same names
from tokenizer_core.registry import __all__ as __all__

warnings.warn(
    "tokenizer_core.store is now tokenizer_core.registry; this alias goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
