"""Named bytes in a folder or a bucket, shared by the hosts that work together."""

from tokenizer_core.blobs.addresses import open_storage, open_stored
from tokenizer_core.blobs.protocol import Storage, Versioned

__all__ = ["Storage", "Versioned", "open_storage", "open_stored"]
