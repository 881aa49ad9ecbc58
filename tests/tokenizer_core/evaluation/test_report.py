"""The report as data: the test recomputes every figure from the text, token by token."""

import json
import math
from collections import Counter

import pytest
import regex

from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.errors import CorpusError
from tokenizer_core.evaluation import TextFiles, build_report, parallel_files
from tokenizer_core.evaluation.pages import render_report_page
from tokenizer_core.evaluation.report import show_token
from tokenizer_core.evaluation.tables import conclusion, render_report

TEXT = "the other the, naïve then\n" * 40 + "<|endoftext|>" + "breathe <|end|> 12\n" * 30
WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")  # enough for this text


@pytest.fixture
def corpora(tmp_path):
    (tmp_path / "en.txt").write_text(TEXT, encoding="utf-8", newline="")
    (tmp_path / "zh.txt").write_text("我们，世界。\n" * 50, encoding="utf-8", newline="")
    return {name: TextFiles(tmp_path / f"{name}.txt", piece_bytes=300) for name in ("en", "zh")}


def report_of(corpora, engine, **options):
    tokenizers = {
        "the": merging(THE, special=["<|end|>"], engine=engine),
        "bytes": merging([], engine=engine),
    }
    return tokenizers, build_report(tokenizers, corpora, **options)


def words_with_tokens(tokenizer, text):
    """For each word, the tokens that contain one of its bytes, found byte by byte."""
    owner = []
    for number, id_ in enumerate(tokenizer.encode_ordinary(text)):
        owner += [number] * len(tokenizer.spec.vocab[id_])
    for match in WORD.finditer(text):
        start, end = (len(text[:place].encode()) for place in match.span())
        yield len(set(owner[start:end]))


def test_every_figure_is_what_a_counter_gives(corpora, engine):
    tokenizers, report = report_of(corpora, engine)
    documents = TEXT.split("<|endoftext|>")
    for name, tokenizer in tokenizers.items():
        measured = report.measurement(name, "en")
        ids = [id_ for document in documents for id_ in tokenizer.encode_ordinary(document)]
        n_bytes = sum(len(document.encode()) for document in documents)
        assert (measured.n_bytes, measured.n_tokens) == (n_bytes, len(ids))
        assert measured.bytes_per_token == n_bytes / len(ids)
        assert measured.tokens_per_byte == pytest.approx(len(ids) / n_bytes)
        n_tokens = [n for document in documents for n in words_with_tokens(tokenizer, document)]
        assert measured.n_words == len(n_tokens)
        assert measured.fertility == pytest.approx(sum(n_tokens) / len(n_tokens))
        assert measured.single_token_words == pytest.approx(n_tokens.count(1) / len(n_tokens))
        shares = [count / len(ids) for count in Counter(ids).values()]
        entropy = math.log2(math.fsum(share**2.5 for share in shares)) / -1.5
        assert measured.n_ids_used == len(shares)
        assert measured.vocabulary_use == len(shares) / tokenizer.vocab_size
        assert measured.renyi_efficiency == pytest.approx(entropy / math.log2(tokenizer.vocab_size))
        assert measured.renyi_efficiency_of_used == pytest.approx(entropy / math.log2(len(shares)))
        assert measured.bytes_per_second > 0
    assert report.measurement("bytes", "en").bytes_per_token == 1
    again = json.loads(json.dumps(report_of(corpora, engine)[1].to_dict()))
    assert again["schema"] == "tokenizer-report/1"
    first = json.loads(json.dumps(report.to_dict()))
    for row in [*again["measurements"], *first["measurements"]]:
        assert row.pop("bytes_per_second") > 0
    assert again == first
    with pytest.raises(LookupError, match="nobody"):
        report.measurement("nobody", "en")


def test_text_without_spaces_has_no_words(corpora):
    _, report = report_of(corpora, "python")
    assert [corpus.has_words for corpus in report.corpora] == [True, False]
    measured = report.measurement("the", "zh")
    assert measured.fertility is measured.single_token_words is None
    mixed = corpora["zh"].paths
    for text, has_words in (("我们 world 世界\n" * 50, False), ("我 the world\n" * 50, True)):
        mixed.write_text(text, encoding="utf-8")
        assert report_of({"mixed": corpora["zh"]}, "python")[1].corpora[0].has_words is has_words


def test_words_beside_added_tokens_are_counted_or_left_out(tmp_path):
    def report_on(text, spec):
        file = tmp_path / "t.txt"
        file.write_text(text, encoding="utf-8")
        return build_report({"t": Tokenizer.from_spec(spec)}, {"t": TextFiles(file)})

    vocab = BYTES | {256: b"th", 257: b"the"}
    spec = TokenizerSpec.from_merges(
        vocab, list(THE[:2]), [AddedToken("[E", 300, special=False)], normalizer="nfc"
    )
    (measured,) = report_on("[E\u0301 the[E the\n" * 9, spec).measurements
    assert (measured.n_words, measured.n_words_left_out) == (9 * 4, 0)
    # The accent after `[E` stays apart, in two tokens; each other word is in one.
    assert (measured.fertility, measured.single_token_words) == (6 / 4, 3 / 4)
    # A token with flags takes the white space between words.
    foo = AddedToken("foo", 300, special=False, lstrip=True, rstrip=True)
    for normalizer in ("none", "nfc"):
        spec = TokenizerSpec.from_merges(BYTES, [], [foo], normalizer=normalizer)
        report = report_on("the foo cat\n" * 9, spec)
        (measured,) = report.measurements
        assert (measured.n_words, measured.n_words_left_out, measured.fertility) == (0, 27, None)
        assert "0 of 27 words" in render_report(report)


def test_the_vocabulary_is_described(corpora, engine):
    _, report = report_of(corpora, engine)
    the, plain = report.tokenizers
    assert (the.vocab_size, the.n_special, plain.vocab_size) == (260, 1, 256)
    assert the.engine == engine
    assert the.n_unreachable == plain.n_unreachable == 13
    assert the.n_partial_utf8 == 128
    assert (the.longest_tokens[0].text, the.longest_tokens[0].n_bytes) == ("' the'", 4)
    assert sum(the.length_shares) == pytest.approx(1)
    assert plain.text_length_shares == [1.0, *[0.0] * 15]
    ids = {id_ for file in corpora.values() for piece in file.pieces() for text in piece.texts
           for id_ in merging([]).encode(text)}  # fmt: skip
    assert plain.vocabulary_use == len(ids) / 256
    assert plain.rank_frequency[-1][0] == len(ids)


def test_parity_of_equal_bytes_and_of_parallel_lines(tmp_path, corpora):
    _, report = report_of(corpora, "python")
    assert report.parity.basis == "equal bytes"
    assert report.parity.ratios["bytes"] == {"en": 1.0, "zh": 1.0}
    (tmp_path / "a.txt").write_text("the\n" * 8, encoding="utf-8")
    (tmp_path / "b.txt").write_text("世界\n" * 8, encoding="utf-8")
    files = parallel_files([tmp_path / "a.txt", tmp_path / "b.txt"])
    _, report = report_of(dict(zip("ab", files, strict=True)), "python", is_parallel=True)
    assert report.parity.basis == "parallel lines"
    assert report.parity.ratios == {"the": {"a": 1, "b": 6}, "bytes": {"a": 1, "b": 2}}
    assert "Tokens for the same lines, a = 1" in render_report(report)
    _, report = report_of({"en": corpora["en"]}, "python")
    assert report.parity is None
    assert "Parity" not in render_report_page(report)
    assert "bytes/token" in render_report(report)


def test_a_corpus_of_separators_alone_has_no_tokens(tmp_path):
    (tmp_path / "none.txt").write_text("<|endoftext|>" * 3)
    (tmp_path / "x.txt").write_text("x")
    corpora = {name: TextFiles(tmp_path / f"{name}.txt") for name in ("none", "x")}
    _, report = report_of(corpora, "python")
    measured = report.measurement("the", "none")
    assert (measured.n_bytes, measured.n_tokens, measured.bytes_per_token) == (0, 0, 0)
    assert measured.fertility is None
    assert report.parity.ratios["the"] == {}
    assert "bytes/token" in render_report(report)
    assert "<svg" in render_report_page(report)
    with pytest.raises(CorpusError, match="no corpus has a character in its sample"):
        build_report({"the": merging(THE)}, {"none": corpora["none"]})
    with pytest.raises(TypeError, match="dicts by displayed name"):
        build_report([merging(THE)], [corpora["x"]])


def test_the_conclusion_names_the_tokenizer_that_needs_the_fewest_tokens(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the the the\n" * 10)
    the = merging([(b"t", b"h"), (b"th", b"e")], engine="python")  # 60 tokens of 120 bytes
    of_bytes = merging([], engine="python")
    for tokenizers, words in (
        ({"a": of_bytes, "the": the}, "the needs the fewest tokens; a needs 2.00 times as many."),
        ({"a": of_bytes, "b": of_bytes}, "a needs the fewest tokens; b needs as many."),
        ({"the": the}, "2.00 bytes per token, 60 tokens."),
    ):
        assert conclusion(build_report(tokenizers, {"t": TextFiles(file)})) == [f"t: {words}"]


def test_a_token_is_shown_on_one_line():
    for token, shown in (
        (b"it's\\", r"'it\'s\\'"),
        (b"\x00\n", r"'\x00\n'"),
        ("a\u202e\u200bb 世".encode(), r"'a\u202e\u200bb 世'"),
        (b"\xe4\xb8!", r"'\xe4\xb8!'"),
        (b"\xff" * 9, r"'\xff' × 9"),
        (b"-" * 8, "'-' × 8"),
        (b"-" * 7, "'-------'"),
        (b"ab" * 30, f"'{'ab' * 30}'"),
        (b"ab" * 30 + b"a", f"'{'ab' * 30}'…"),
    ):
        assert show_token(token) == shown
