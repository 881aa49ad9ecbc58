"""The client moved to `tokenizer_client`; this name stays for one release."""

from tokenizer_client import *  # noqa: F403
from tokenizer_client import __all__ as __all__
