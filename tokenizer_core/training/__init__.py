"""Training: corpus -> counts -> merges -> tokenizer. The names below are the public interface."""

from tokenizer_core.documents import CorpusSource
from tokenizer_core.training.combine_counts import combine_counts
from tokenizer_core.training.count_pretokens import count_pretokens
from tokenizer_core.training.id_maps import IdMap
from tokenizer_core.training.learn_merges import LearningRules, learn_merges
from tokenizer_core.training.pretoken_counts import PretokenCounts, Pruning
from tokenizer_core.training.prune_counts import prune_counts
from tokenizer_core.training.shrinking import shrink, used_ids
from tokenizer_core.training.trainer import (
    TrainingOptions,
    TrainingProgress,
    TrainingResult,
    train,
    train_bpe,
    train_from_counts,
    train_from_iterator,
)
from tokenizer_core.training.vocabulary_plan import VocabularyOptions

__all__ = [
    "CorpusSource",
    "IdMap",
    "LearningRules",
    "PretokenCounts",
    "Pruning",
    "TrainingOptions",
    "TrainingProgress",
    "TrainingResult",
    "VocabularyOptions",
    "combine_counts",
    "count_pretokens",
    "learn_merges",
    "prune_counts",
    "shrink",
    "train",
    "train_bpe",
    "train_from_counts",
    "train_from_iterator",
    "used_ids",
]
