"""Work on many machines: runs whose shards any executor computes and commits to a storage.

The storage alone holds the state of a run; executors only schedule. These names are public.
"""

from tokenizer_core.distributed.committed_shards import Attempt
from tokenizer_core.distributed.counting import count_distributed
from tokenizer_core.distributed.encoding import encode_distributed
from tokenizer_core.distributed.runs import Run, Stage

__all__ = [
    "Attempt",
    "Run",
    "Stage",
    "count_distributed",
    "encode_distributed",
]
