"""Named bytes in a folder or a bucket, which several hosts share."""

from tokenizer_core.blobs.addresses import open_storage, open_stored
from tokenizer_core.blobs.protocol import Storage

__all__ = ["Storage", "open_storage", "open_stored"]
