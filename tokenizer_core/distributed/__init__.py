"""Work over many machines: runs whose shards are committed in a storage, by whatever executor.

The storage is the truth, executors only schedule. The names below are what others may use.
"""

from tokenizer_core.distributed.committed_shards import Attempt, CommittedFile, ShardManifest
from tokenizer_core.distributed.corpus_sources import SourceFile
from tokenizer_core.distributed.counting import count_distributed
from tokenizer_core.distributed.encoding import encode_distributed
from tokenizer_core.distributed.runs import Run, Stage, remove_run

__all__ = [
    "Attempt",
    "CommittedFile",
    "Run",
    "ShardManifest",
    "SourceFile",
    "Stage",
    "count_distributed",
    "encode_distributed",
    "remove_run",
]
