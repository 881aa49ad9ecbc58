"""Training from end to end: counting, the reference, the report, refusals, cancelling."""

import gzip
import hashlib
import json
import sys
from importlib import import_module

import pytest

from tests.tokenizer_core.documents.file_changes import CHANGES
from tokenizer_core import reference
from tokenizer_core.documents import CorpusFormat
from tokenizer_core.errors import (
    CorpusChangedError,
    CorpusError,
    InvalidSpecError,
    TooManyBadDocumentsError,
    TrainingCancelledError,
    UnknownPatternError,
    VocabSizeError,
)
from tokenizer_core.formats.gpt2_files import parse_token
from tokenizer_core.spec.checks import MAX_TOKEN_ID
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.training import (
    CorpusSource,
    PretokenCounts,
    TrainingOptions,
    count_pretokens,
    train,
    train_bpe,
    train_from_counts,
    train_from_iterator,
)
from tokenizer_core.training.vocabulary_plan import VocabularyOptions

COUNTING = import_module("tokenizer_core.training.count_pretokens")
EXAMPLE = "low low lower newest newest widest widest widest"


@pytest.fixture(autouse=True)
def use_engine(monkeypatch, engine):
    """Every test here runs on each engine, except those that name one."""
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(EXAMPLE)
    return path


@pytest.mark.shared_data
@pytest.mark.parametrize("num_workers", [1, 3])
def test_training_equals_the_cs336_reference(shared_data, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    folder = shared_data / "cs336"
    vocab, merges = train_bpe(folder / "corpus.en", 500, ["<|endoftext|>"], num_workers=num_workers)
    lines = (folder / "train-bpe-reference-merges.txt").read_text("utf-8").splitlines()
    assert merges == [tuple(map(parse_token, line.split(" "))) for line in lines]
    reference = json.loads((folder / "train-bpe-reference-vocab.json").read_text("utf-8"))
    assert set(vocab) == set(reference.values())
    assert set(vocab.values()) == {
        word.encode() if word == "<|endoftext|>" else parse_token(word) for word in reference
    }


def test_ids_are_bytes_then_special_tokens_then_merges(corpus):
    vocab, merges = train_bpe(str(corpus), 260, ["<|b|>", "漢"])
    assert list(vocab.items()) == [
        *((i, bytes([i])) for i in range(256)),
        *enumerate([b"<|b|>", "漢".encode(), b"st", b"est"], 256),
    ]
    assert train(corpus, TrainingOptions(260, ["<|b|>", "漢"])).merges == merges
    assert train_bpe(corpus, 257, ["<|e|>"])[1] == []


def test_a_text_of_special_tokens_alone_has_no_tokens(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("<|e|><|e|>")
    result = train([path], TrainingOptions(vocab_size=300, special_tokens=["<|e|>"]))
    assert result.merges == []
    assert result.report.bytes_per_token == 0.0


def test_the_report_equals_the_reference(tmp_path, engine):
    path = tmp_path / "corpus.txt"
    text = "low lower\nnewest 漢字漢字漢字<|e|>widest low" * 3
    path.write_text(text)
    result = train([path], TrainingOptions(vocab_size=266, special_tokens=["<|e|>"], num_workers=1))
    report = result.report.to_dict()
    assert json.loads(json.dumps(report)) == report
    counts = reference.count_words(text, ["<|e|>"])
    vocab, merges = reference.train(text, 266, ["<|e|>"])
    assert report["n_bytes"] == len(text.encode())
    assert report["n_documents"] == 4
    assert report["n_pre_tokens"] == counts.total()
    assert report["n_distinct_pre_tokens"] == len(counts)
    assert report["vocab_size"] == 266
    assert report["n_merges"] == len(merges) == 9
    assert report["stopped_early"] is None
    assert report["engine"] == report["counting_engine"] == engine
    assert report["tie_break"] == "lexicographic"
    assert report["longest_token_bytes"] == max(len(left + right) for left, right in merges)
    assert report["longest_token_text"].encode("utf-8", "replace")
    assert report["peak_memory_bytes"] > 10_000_000
    assert report["peak_own_memory_bytes"] > 10_000_000
    assert report["seconds_counting"] >= 0
    n_tokens = sum(n * len(reference.apply_merges(t.encode(), merges)) for t, n in counts.items())
    assert report["n_tokens"] == n_tokens
    n_bytes = sum(n * len(token.encode()) for token, n in counts.items())
    assert report["bytes_per_token"] == round(n_bytes / n_tokens, 4)
    assert result.vocab == vocab


@pytest.mark.row(26)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"vocab_size": -5}, VocabSizeError, "at least 256"),
        ({"vocab_size": "300"}, TypeError, "vocab_size must be an int, not str"),
        ({"extend": "gpt2"}, TypeError, "`spec` of a tokenizer, not str"),
        ({"special_tokens": "<s>"}, InvalidSpecError, "list of strings, not '<s>'"),
        ({"special_tokens": 5}, InvalidSpecError, "list of strings, not 5"),
        ({"pattern": "gpt5"}, UnknownPatternError, "'gpt5'"),
        ({"tie_break": "none"}, ValueError, "tie_break must be one of"),
        ({"engine": "rust"}, ValueError, "'rust'"),
        ({"errors": "ignore"}, ValueError, "errors must be 'strict'"),
        ({"num_workers": 0}, ValueError, "num_workers must be at least 1, not 0"),
        ({"num_workers": "2"}, TypeError, "num_workers must be an int, not str"),
        ({"chunk_bytes": -1}, ValueError, "chunk_bytes must be at least 1"),
        ({"max_bad": 2.0}, ValueError, "max_bad is a share"),
        ({"max_memory_bytes": 1}, ValueError, "max_memory_bytes must be at least"),
        ({"vocabulary": VocabularyOptions(min_frequency=0)}, InvalidSpecError, "min_frequency"),
    ],
)
def test_wrong_options_are_refused_where_they_are_made(options, error, words):
    with pytest.raises(error, match=words):
        TrainingOptions(**{"vocab_size": 300} | options)


def test_special_tokens_that_can_be_read_once_are_kept():
    options = TrainingOptions(300, (token for token in ["<a>", "<b>"]))
    assert train_from_iterator(["low <a>"], options).spec.special_tokens.keys() == {"<a>", "<b>"}


def test_sizes_and_special_tokens_that_cannot_be_are_refused(corpus):
    for size in (256, -5):
        with pytest.raises(VocabSizeError, match="at least 257"):
            train_bpe(corpus, size, ["<|e|>"])
    with pytest.raises(VocabSizeError, match=f"at most {MAX_TOKEN_ID + 1}"):
        train_bpe(corpus, MAX_TOKEN_ID + 2, [])
    for specials, message in (
        (["<|e|>", "<|e|>"], "given twice"),
        (["a"], "single byte"),
        ("<|e|>", "must be a list"),
    ):
        with pytest.raises(InvalidSpecError, match=message):
            train_bpe(corpus, 300, specials)


def test_training_is_cancelled(monkeypatch, engine):
    # At every report: the result must not depend on the machine's speed.
    monkeypatch.setattr(sys.modules[train.__module__], "_POLL_SECONDS", 0.0)
    n_words = 400_000 if engine == "native" else 20_000
    counts = PretokenCounts({f"{i:08d}": 1 for i in range(n_words)}, PATTERNS["gpt2"])
    answers = iter([False, False, True])
    with pytest.raises(TrainingCancelledError):
        train_from_counts(counts, 400_000, should_cancel=lambda: next(answers, True))
    read = []
    texts = (read.append(n) or f"text {n}" for n in range(1000))
    with pytest.raises(TrainingCancelledError):
        train_from_iterator(texts, TrainingOptions(300), should_cancel=lambda: len(read) > 9)
    assert len(read) == 10


TEXTS = ["low lower<|e|>low", "", "lowest 東京", " new", "<|e|>", "er\n", "\n\nlow\0"]


@pytest.mark.parametrize("chunk_bytes", [None, 50])
def test_training_from_texts_equals_training_from_files(tmp_path, engine, chunk_bytes):
    options = TrainingOptions(270, ["<|e|>"], engine=engine, chunk_bytes=chunk_bytes)
    texts = TEXTS * 9
    files = [tmp_path / f"{index:03}.txt" for index, text in enumerate(texts) if text]
    for file, text in zip(files, filter(None, texts), strict=True):
        file.write_text(text, encoding="utf-8", newline="")
    of_files = train(files, options)
    of_texts = train_from_iterator(iter(texts), options)
    assert of_texts.merges == of_files.merges
    assert of_texts.tokenizer == of_files.tokenizer
    assert of_texts.counts.counts == of_files.counts.counts
    assert of_texts.counts.special_tokens == ("<|e|>",)
    assert of_texts.counts.sources == ()
    for figure in ("n_bytes", "n_documents", "n_tokens"):
        assert getattr(of_texts.report, figure) == getattr(of_files.report, figure)
    assert train_from_iterator(["a", "b"] * 50, options).merges == []


def test_invalid_texts_are_named(tmp_path):
    for texts, kind, message in (
        ("abc", TypeError, "not one string"),
        (["a", b"b"], TypeError, r"texts\[1\] is a bytes, not a string"),
        (["a", "b\ud800"], CorpusError, r"texts\[1\] has a lone surrogate at character 1"),
        ([], CorpusError, "at least one text that is not empty"),
    ):
        with pytest.raises(kind, match=message):
            train_from_iterator(texts, TrainingOptions(300, scratch_folder=tmp_path))
        assert not any(tmp_path.iterdir())


GPT2 = PATTERNS["gpt2"]


def test_several_files_are_counted_each_by_itself(tmp_path):
    (tmp_path / "one").write_text("one tw")
    (tmp_path / "two").write_text("o three<|e|>")
    (tmp_path / "none").write_text("")
    paths = [tmp_path / name for name in ("one", "none", "two")]
    counted = count_pretokens(paths, pattern=GPT2, special_tokens=["<|e|>"])
    assert counted.counts == {"one": 1, " tw": 1, "o": 1, " three": 1}
    assert counted.n_bytes == 18
    assert counted.n_documents == 2
    assert counted.sources == tuple(
        CorpusSource(str(path), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in paths
    )


def test_bad_documents_are_left_out_of_the_counts(tmp_path):
    """In plain text, what one of the special tokens or the separator ends is a document."""
    texts = [b"low low", b"lower\nlo\xffwest", b"new newer", b"cut \xe6\x9d", b"newest"]
    ends = [b"<|e|>", b"<|e|><|f|>", b"%", b"<|f|>", b""]
    plain = b"".join(text + end for text, end in zip(texts, ends, strict=True))
    lines = ['{"text": "low"}', '{"text": null}', '{"text": "lower"}']
    (tmp_path / "a.txt").write_bytes(plain)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    (tmp_path / "d.txt").write_text("good")
    expected = {"low": 1, " low": 1, "new": 1, " newer": 1, "newest": 1}
    how = {"pattern": GPT2, "special_tokens": ["<|e|>", "<|f|>", "<|e|><|f|>"]}
    for separator in ("%", "<|e|>"):
        corpus_format = CorpusFormat(separator=separator)
        for name, counts, reasons in (
            ("a.txt", expected, {"invalid_utf8": 2}),
            ("b.txt.gz", expected, {"invalid_utf8": 2}),
            ("c.jsonl", {"low": 1, "lower": 1}, {"null": 1}),
            ("d.txt", {"good": 1}, {}),
        ):
            files = [tmp_path / name]
            found = count_pretokens(files, corpus_format=corpus_format, max_bad=0.5, **how)
            assert found.bad_documents.reasons == reasons
            if separator != "%" and counts == expected:  # the third text is a part of the fourth
                counts = {"low": 1, " low": 1, "newest": 1}
            assert found.counts == counts
    with pytest.raises(TooManyBadDocumentsError, match=r"1 bad .* of 3 documents, more than 30"):
        train([tmp_path / "c.jsonl"], TrainingOptions(257, max_bad=0.3))
    report = train([tmp_path / "c.jsonl"], TrainingOptions(257, max_bad=0.4)).report.to_dict()
    place = {"file": "c.jsonl", "line": 2, "reason": "null"}
    assert report["bad_documents"] == {"reasons": {"null": 1}, "first": [place]}


@pytest.mark.row(26)
@pytest.mark.parametrize(
    ("change", "chunk_bytes"),
    [*((change, 2_000) for change in CHANGES), (CHANGES[0], 1 << 20), (CHANGES[2], 1 << 20)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_corpus_that_changes_meanwhile_is_an_error(corpus, change, chunk_bytes):
    corpus.write_text("some words " * 1_000)
    changes = [change]

    def change_once(done, total):
        if changes:
            changes.pop()(corpus)

    with pytest.raises(CorpusChangedError, match="changed while it was read"):
        count_pretokens([corpus], pattern=GPT2, chunk_bytes=chunk_bytes, progress=change_once)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_counting_is_cancelled(corpus, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    monkeypatch.setattr("tokenizer_core.training.trainer._POLL_SECONDS", 0)  # however fast it is
    corpus.write_text(f"{EXAMPLE} " * 20_000)
    done = []
    with pytest.raises(TrainingCancelledError):
        train(
            [corpus],
            TrainingOptions(vocab_size=300, num_workers=num_workers, chunk_bytes=200),
            progress=lambda event: done.append(event.done),
            should_cancel=lambda: bool(done),
        )
    assert done[-1] < corpus.stat().st_size


def test_the_number_of_workers_depends_on_the_size(monkeypatch):
    choose = COUNTING.choose_num_workers
    large = COUNTING.SMALL_CORPUS_BYTES + 1
    assert choose(large, 3) == 3
    assert choose(large - 1, 3) == 1
    monkeypatch.setattr(COUNTING, "count_processors", lambda: 5)
    assert choose(large, None) == 5
    with pytest.raises(ValueError, match="num_workers must be at least 1"):
        choose(large, 0)


def test_invalid_arguments_of_counting_are_refused(corpus):
    corpus.write_text("")
    for paths, options, kind, said in (
        ([corpus], {"errors": "ignore"}, ValueError, "errors must be 'strict' or 'replace'"),
        ([corpus], {"errors": "replace", "max_bad": 0.1}, ValueError, "take one of them"),
        ([corpus], {"max_bad": 1.1}, ValueError, "max_bad is a share from 0 to 1"),
        ([corpus], {"special_tokens": "<|e|>"}, InvalidSpecError, "must be a list of strings"),
        ([corpus], {"special_tokens": {"<|e|>": 5}}, InvalidSpecError, "must be a list of strings"),
        (["*.none"], {}, CorpusError, "find_corpus_files gives the files of a pattern"),
        ([], {}, CorpusError, "no corpus file was given"),
        ([corpus, corpus], {}, CorpusError, "the corpus is empty"),
    ):
        with pytest.raises(kind, match=said):
            count_pretokens(paths, pattern=GPT2, **options)


def test_train_bpe_warns_of_a_text_that_gives_fewer_merges(corpus):
    corpus.write_text("low low")
    with pytest.warns(UserWarning, match="ended early, with 259 of 300 entries"):
        train_bpe(corpus, 300, [])
