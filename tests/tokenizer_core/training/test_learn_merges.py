"""The learner on cases with a known answer; tests/property has random ones."""

import random
from collections import Counter

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.training import learn_merges


def test_tokens_are_counted_with_repetitions():
    assert learn_merges({}, 3).no_pair_left
    huge = 1 << 70
    assert learn_merges({"ab": huge, "cd": huge + 1}, 1).merges == [(b"c", b"d")]
    assert learn_merges({"abab": 10, "b": 3}, 0).n_tokens == 43
    assert learn_merges({"abab": 10, "b": 3}, 1).n_tokens == 23
    assert learn_merges({"\u6f22": 2}, 0).n_tokens == 6


@pytest.mark.thorough
def test_ids_beyond_the_first_plane_are_learned():
    # Symbol 256 + k is the character of that code point: some are surrogates, some beyond U+FFFF.
    rng = random.Random(5)
    words = {"".join(rng.choices("abcdefgh", k=12)): 1 for _ in range(24_000)}
    learned = learn_merges(words, 70_000)
    assert len(learned.merges) > 0x10000
    vocabulary = {bytes([byte]) for byte in range(256)}
    for left, right in learned.merges:
        assert left in vocabulary
        assert right in vocabulary
        assert left + right not in vocabulary
        vocabulary.add(left + right)


def test_after_merge_sees_each_merge():
    seen = []
    learn_merges({"abcd": 1}, 2, after_merge=seen.append)
    assert seen == [1, 2]


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="tie_break must be one of lexicographic, huggingface"):
        learn_merges({"ab": 1}, 1, tie_break="random")
    with pytest.raises(ValueError, match="count 0, below 1"):
        learn_merges({"ab": 0}, 1)


def test_huggingface_ties_equal_the_tokenizers_library():
    rng = random.Random(11)
    letters = "abcde AZ\n\t09é漢À\u00ad😀"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(3_000)]
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(words, trainer)
    vocabulary = theirs.get_vocab()
    ours = learn_merges(Counter(words), 300, tie_break="huggingface").merges
    named = [render_token(left + right) for left, right in ours]
    assert named == sorted(vocabulary, key=vocabulary.__getitem__)[256:]
