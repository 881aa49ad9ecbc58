"""SuperBPE: merges inside words up to a size, then merges that join words of a line."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core import Tokenizer, reference
from tokenizer_core.errors import CorpusError, InvalidSpecError, UnknownPatternError, VocabSizeError
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern, superword_pattern
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.training import (
    PretokenCounts,
    TrainingOptions,
    VocabularyOptions,
    train,
    train_from_counts,
    train_from_iterator,
)

END = "<|endoftext|>"
TEXT = (
    "Out of the house, it's one of the\nways of the world: 12 of the 345 didn't, of course.\r\n"
    "\tif (it's) == 'of the': return foo.bar(漢字。 漢字、of)  # of the\n\n\n"
) * 4
TEXTS = [TEXT, TEXT.upper(), TEXT[::-1], " 's'st 'T 'll", ".\n/.\n//a. /b", "a  b . c"]
WILD = st.text(st.sampled_from("aZé漢1² \t\r\n.,/'st\u3000\u0301"), max_size=40)


def learn(size, start, engine="auto", text=TEXT, **options):
    vocabulary = VocabularyOptions(superwords_from=start, **options)
    return train_from_iterator(
        [text], TrainingOptions(size, [END], vocabulary=vocabulary, engine=engine)
    )


def test_a_superword_is_one_token_across_a_space(engine):
    """The words are ` of`, ` the` and `,`; the stage after them joins ` of` and ` the` first."""
    run = learn(263, 262, engine, text=" of the, of the" * 9)
    assert [left + right for left, right in run.merges] == [
        b"th", b"the", b"of", b" the", b" of", b" of the",
    ]  # fmt: skip
    assert run.tokenizer.encode(" of the, of the") == [262, ord(","), 262]
    assert run.report.n_tokens == len(run.tokenizer.encode(" of the, of the" * 9))


@pytest.mark.parametrize("tie_break", ["lexicographic", "huggingface"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_stages_are_as_defined(engine, pattern, tie_break):
    options = TrainingOptions(300, pattern=pattern, tie_break=tie_break, engine=engine)
    words = train_from_iterator([TEXT], options).merges
    superwords = replace(options, vocab_size=340, vocabulary=VocabularyOptions(superwords_from=300))
    run = train_from_iterator(iter([TEXT]), superwords)
    joined = Counter(split(TEXT, run.spec.pattern))
    assert run.merges == reference.learn(joined, 84, tie_break, first_merges=words)
    assert run.report.engine == engine
    assert [point.vocab_size for point in run.report.curve] == list(range(300, 341))
    assert run.at_size(320).merges == run.merges[:64]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ids_are_those_of_the_definition_and_of_hugging_face(engine, pattern):
    options = TrainingOptions(
        360, [END], pattern=pattern, vocabulary=VocabularyOptions(superwords_from=300)
    )
    spec = train_from_iterator([TEXT], options).spec
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    theirs = tokenizers.Tokenizer.from_str(render_tokenizer_json(spec).decode())
    for text in [*TEXTS, TEXT + END + TEXT]:
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == theirs.encode(text).ids
        expected = []
        for stretch, special in reference.split_at_special_tokens(text, [END]):
            for word in split(stretch, spec.pattern):
                merged = reference.apply_merges(word.encode(), spec.merges)
                expected += [spec.token_to_id[token] for token in merged]
            expected += [256] if special else []
        assert ids == expected


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=WILD)
def test_superwords_are_whole_words_of_a_line(pattern, text):
    """So every token that was learned inside words keeps its place."""

    def ends(pattern):
        return list(accumulate(map(len, split(text, pattern))))

    superwords = superword_pattern(PATTERNS[pattern])
    assert {*ends(superwords)} <= {*ends(PATTERNS[pattern])}
    for piece in split(text, superwords):
        assert "\n" not in piece or not any(map(str.isalpha, piece))


def test_seeds_limits_and_reserved_tokens_hold_in_both_stages(engine):
    run = learn(400, 300, engine, seed_tokens=("zz",), max_token_length=7, n_reserved=3)
    assert run.report.n_seed_merges == 1
    assert run.merges[0] == (b"z", b"z")
    assert run.report.longest_token_bytes == 7
    assert run.report.options.superwords_from == 300
    rare = learn(400, 300, engine, min_frequency=12)
    assert "at least 12 times" in str(rare.report.stopped_early)
    assert rare.merges[-2:] == [(b" ", b"of"), (b" of", b" the")]  # no pair of words was left


def test_impossible_sizes_are_refused():
    for start, message in ((300, "larger than superwords_from 300"), (256, "256 is too small: 25")):
        with pytest.raises(VocabSizeError, match=message):
            learn(300, start)
    with pytest.raises(VocabSizeError, match="larger than superwords_from"):
        learn(300, 290).at_size(290)


def test_what_has_no_second_stage_is_refused():
    vocabulary = VocabularyOptions(superwords_from=290)
    counts = PretokenCounts({"low": 2}, PATTERNS["gpt2"])
    with pytest.raises(InvalidSpecError, match="two counts"):
        train_from_counts(counts, 300, options=vocabulary)
    options = TrainingOptions(300, vocabulary=vocabulary)
    base = learn(280, 270).spec
    with pytest.raises(InvalidSpecError, match="its own pattern"):
        train_from_iterator([TEXT], replace(options, extend=base))
    custom = SplitPattern("custom", r"\w+")
    with pytest.raises(UnknownPatternError, match="named split pattern"):
        train_from_iterator([TEXT], replace(options, pattern=custom))


def test_a_corpus_that_changes_between_the_stages_is_refused(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)

    def change(progress):
        if progress.phase == "learn":
            path.write_text(TEXT.upper())

    options = TrainingOptions(300, vocabulary=VocabularyOptions(superwords_from=290))
    with pytest.raises(CorpusError, match="changed"):
        train(path, options, progress=change)
    texts = [TEXT]
    with pytest.raises(CorpusError, match="changed"):
        train_from_iterator(texts, options, progress=lambda _: texts.append(TEXT))
