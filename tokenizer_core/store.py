"""Published tokenizers moved to `tokenizer_core.registry`; this name stays for one release."""

from tokenizer_core.registry import *  # noqa: F403
from tokenizer_core.registry import __all__ as __all__
