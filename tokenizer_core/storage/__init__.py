"""Storage: named bytes in a folder or under an address, shared by the hosts that work together.

Opened by `open_storage`, with a path or an address; `open_stored` takes that of one name in it.
"""

from tokenizer_core.storage.open_storage import open_storage, open_stored
from tokenizer_core.storage.protocol import Storage, Versioned

__all__ = ["Storage", "Versioned", "open_storage", "open_stored"]
