"""The ids of each document of files, in order or shuffled, at once or resumed from a checkpoint."""

import gzip
import hashlib
import json
import os
import shutil
import time
import tracemalloc
from dataclasses import replace
from functools import partial

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE, content, small_batches
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tests.tokenizer_core.formats.small_specs import BYTES
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import file_of
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.corpus import (
    CorpusFormat,
    LostTokens,
    TokenFiles,
    TokenFilesWriter,
    can_resume,
    corpus_encoding,
    document_cuts,
    document_shuffle,
    encode_corpus,
    encoding_run,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.document_batches import CorpusPosition, iterate_batches
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.distributed import encode_distributed
from tokenizer_core.errors import (
    CorpusError,
    SpecialTokenForbiddenError,
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    TokenizerMismatchError,
    TooManyBadDocumentsError,
)
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.parallel import LocalExecutor

THINKING = Tokenizer.from_spec(
    TokenizerSpec.from_merges(
        BYTES,
        [],
        [
            AddedToken("<|begin|>", 257),
            AddedToken("<|end|>", 258),
            AddedToken("<think>", 300, special=False),
        ],
        normalizer="nfc",
    )
)

documents = st.lists(
    st.text(st.sampled_from("ab \n<|é🙂") | st.characters(exclude_categories=["Cs"]), max_size=40),
    min_size=1,
    max_size=12,
)


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def encode(folder, texts, tokenizer=NARROW, **options):
    """The documents of one file of JSON lines, into `folder`/tokens."""
    file = write_lines(folder / "corpus.jsonl", texts)
    plan_names = ("layout", "begin_of_document", "end_of_document", "seed", "allowed_special")
    plan_names += ("disallowed_special",)
    planned = {name: options.pop(name) for name in plan_names if name in options}
    plan = plan_token_files(tokenizer, **{"end_of_document": ""} | planned)
    return encode_corpus(tokenizer, file, folder / "tokens", plan, **options)


def test_the_end_of_text_ends_a_document_of_plain_text(tmp_path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two")
    plan = plan_token_files(NARROW, end_of_document="")
    for corpus_format, n_documents in ((None, 2), (CorpusFormat(), 1)):
        folder = tmp_path / str(n_documents)
        manifest = encode_corpus(
            NARROW, tmp_path / "a.txt", folder, plan, corpus_format=corpus_format
        )
        assert manifest.splits[0].n_documents == n_documents


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("a.txt", {}, "recognised"),
        ("a.jsonl", {}, "forbidden"),
        ("a.parquet", {}, "forbidden"),
        ("a.jsonl", {"allowed_special": "all"}, "recognised"),
        ("a.jsonl", {"allowed_special": "none"}, "neither"),
    ],
)
def test_special_tokens_by_default_are_those_of_the_format(name, options, expected, tmp_path):
    file = write_corpus(tmp_path / name, ["one"], name.partition(".")[2])
    plan = plan_token_files(NARROW, end_of_document="", **options)
    encode_corpus(NARROW, file, tmp_path / "tokens", plan)
    found = TokenFiles.open(tmp_path / "tokens").manifest.plan
    special = tuple(sorted(NARROW.spec.special_tokens))
    assert (found.recognised_special, found.forbidden_special) == {
        "recognised": (special, ()),
        "forbidden": ((), special),
        "neither": ((), ()),
    }[expected]


@examples(1 / 5)  # other threads run meanwhile
@given(
    documents,
    st.sampled_from(["", "<|begin|>"]),
    st.sampled_from(["", "<|end|>"]),
    st.integers(1, 60),
    st.sampled_from(["all", "none"]),
    st.sampled_from([NARROW, WIDE]),
)
def test_each_document_is_encoded_as_if_alone(
    tmp_path_factory, texts, begin, end, batch_bytes, allowed, tokenizer
):
    texts = [*texts, "one <|end|> more<|begin|>"]
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
        manifest = encode(
            folder,
            texts,
            tokenizer,
            begin_of_document=begin,
            end_of_document=end,
            allowed_special=allowed,
        )
    special = tokenizer.spec.special_tokens
    files = TokenFiles.open(folder / "tokens", tokenizer)
    assert files.n_documents() == len(texts)
    for index, text in enumerate(texts):
        expected = [special[name] for name in (begin,) if name]
        expected += tokenizer.encode(text, allowed_special=allowed)
        expected += [special[name] for name in (end,) if name]
        assert files.document(index).tolist() == expected
    assert manifest.split("train").n_bytes == sum(len(text.encode()) for text in texts)
    verify_token_files(folder / "tokens", tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("allowed", "forbidden", "n_kept"),
    [
        ("all", (), 0),
        ("none", (), 2),
        ("none", ("<absent>",), 2),
        ("ordinary", (), 2),
        (("<|end|>",), (), 1),
        (("<|end|>",), ("<absent>",), 1),
    ],
)
def test_added_tokens_count_as_in_a_text(tmp_path, allowed, forbidden, n_kept):
    texts = ["one <|end|> more <think> cafe\u0301<|begin|>"]
    specials = {"allowed_special": allowed, "disallowed_special": forbidden}
    manifest = encode(tmp_path, texts, THINKING, **specials, end_of_document="<|end|>")
    assert sum(manifest.split("train").special_tokens_found.values()) == 3 - (
        3 if allowed == "ordinary" else n_kept
    )
    assert dict(manifest.counts) == ({"special_tokens_kept_as_text": n_kept} if n_kept else {})
    files = TokenFiles.open(tmp_path / "tokens", THINKING)
    ids = THINKING.encode(texts[0], allowed_special=allowed)
    assert files.document(0).tolist() == [*ids, 258]
    verify_token_files(tmp_path / "tokens", tokenizer=THINKING, texts={"train": texts})


def test_the_share_is_drawn_from_the_seed(tmp_path):
    texts = [f"{index} " for index in range(1000)]
    kept = {}
    for name, seed, share in (("a", 1, 0.1), ("b", 1, 0.3), ("c", 2, 0.1)):
        (tmp_path / name).mkdir()
        encode(tmp_path / name, texts, seed=seed, validation_share=share)
        files = TokenFiles.open(tmp_path / name / "tokens")
        held_out = range(files.n_documents("validation"))
        kept[name] = {files.decode_document(index, NARROW, "validation") for index in held_out}
        assert files.n_documents() + len(held_out) == len(texts)
    assert 60 < len(kept["a"]) < 140
    assert kept["a"] < kept["b"]  # a larger share holds out the same ones and more
    assert kept["a"] != kept["c"]


def test_several_files_are_one_corpus_and_each_is_in_the_manifest(tmp_path):
    files = [tmp_path / "1.txt", tmp_path / "2.jsonl.gz"]
    files[0].write_text("one<|end|>two<|end|>")
    files[1].write_bytes(gzip.compress(b'{"text": "three"}\n'))
    seen = []
    plan = plan_token_files(NARROW, end_of_document="<|end|>")
    how = {"corpus_format": CorpusFormat(separator="<|end|>"), "progress": seen.append}
    manifest = encode_corpus(NARROW, files, tmp_path / "tokens", plan, **how)
    opened = TokenFiles.open(tmp_path / "tokens", NARROW)
    found = [opened.decode_document(index, NARROW) for index in range(3)]
    assert found == ["one<|end|>", "two<|end|>", "three<|end|>"]
    assert [(source.path, source.size_bytes, source.sha256) for source in manifest.sources] == [
        (path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    ]
    total = sum(path.stat().st_size for path in files)
    assert (seen[-1].bytes_done, seen[-1].bytes_total) == (total, total)
    assert (seen[-1].n_documents, seen[-1].n_tokens) == (3, opened.n_tokens())


def test_a_failed_encoding_leaves_nothing(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="")
    file = write_lines(tmp_path / "corpus.jsonl", ["text <|end|>", ""])
    for error, match, how in (
        (TokenFilesPlanError, "validation_share", {"validation_share": 1.0}),
        (TokenFilesPlanError, "validation_share", {"validation_share": float("nan")}),
        (CorpusError, "line 1", {"corpus_format": CorpusFormat(field="story")}),
        (CorpusError, "line 1", {"corpus_format": CorpusFormat(field="story"), "shuffle": True}),
        (CorpusError, "UTF-8|gzip", {"corpus_format": CorpusFormat(format="txt.gz")}),
        (TokenizerMismatchError, None, {"tokenizer": WIDE}),
        (SpecialTokenForbiddenError, None, {}),
    ):
        given = {"tokenizer": NARROW, "plan": plan} | how
        with pytest.raises(error, match=match):
            encode_corpus(files=[file], folder=tmp_path / "tokens", **given)
        assert list(tmp_path.iterdir()) == [file]
    file.write_text('{"text": null}\n{"text": "<|end|>"}\n')
    with pytest.raises(SpecialTokenForbiddenError, match="line 2"):
        encode_corpus(NARROW, [file], tmp_path / "tokens", plan, max_bad=0.9)
    with pytest.raises(TokenFilesError, match="no ids were written"):
        encode(tmp_path, ["", ""])
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("name", "place", "engine", "normalizer"),
    [
        ("b.txt", r"document 31 (from 1)", "auto", "none"),
        ("b.jsonl.gz", "line 31", "python", "nfc"),
        ("b.parquet", r"row 31 (from 1)", "auto", "nfc"),
    ],
)
def test_a_bad_document_is_reported_with_file_and_place(
    tmp_path, monkeypatch, engine, normalizer, name, place
):
    monkeypatch.setattr(document_cuts, "MAX_PENDING_CHARS", 1000)
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 100)
    spec = replace(NARROW.spec, normalizer=normalizer_of(normalizer))
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    texts = [f"number e\u0301 {number}" for number in range(40)]
    files = [write_corpus(tmp_path / "a.txt", ["one", "two"], "txt"), tmp_path / name]
    plan = plan_token_files(
        tokenizer, end_of_document="", allowed_special="none", disallowed_special="all"
    )
    for text, error, message in (
        ("a long text " * 100 + "<|end|> and", SpecialTokenForbiddenError, "the document holds"),
        ("one two " * 100 + "ACGT" * 1000, CorpusError, "a document has no"),
    ):
        texts[30] = text
        write_corpus(files[1], texts, name.partition(".")[2])
        how = {"corpus_format": CorpusFormat(separator=SEPARATOR), "resume": True}
        for _ in range(2):
            with pytest.raises(error) as caught:
                encode_corpus(tokenizer, files, tmp_path / f"{error}", plan, **how)
            told = f"the corpus file '{files[1]}', {place}: {message}"
            assert str(caught.value).startswith(told)


@pytest.mark.parametrize(("engine", "batch_bytes"), [("auto", 20), ("python", 1 << 19)])
def test_bytes_that_are_not_utf8_are_reported_with_file_byte_and_line(
    tmp_path, monkeypatch, engine, batch_bytes
):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    tokenizer = Tokenizer.from_spec(NARROW.spec, engine=engine)
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    files[0].write_text("good|words")
    files[1].write_bytes("né|".encode() * 30 + b"mor\n\xffwords|" + b"end")
    plan, how = plan_token_files(tokenizer, end_of_document=""), CorpusFormat(separator="|")
    with pytest.raises(CorpusError, match=r"b\.txt' is not UTF-8: .* at byte 124, line 2;"):
        encode_corpus(tokenizer, files, tmp_path / "tokens", plan, corpus_format=how)
    assert not (tmp_path / "tokens").exists()


TEXTS = [("a b " * 100)[:n] for n in (3, 9, 1, 400, 10, 0, 11, 5)]


@pytest.mark.parametrize("batch_bytes", [1, 20, 1 << 19])
@pytest.mark.parametrize(("over", "shuffle"), [("truncate", True), ("drop", True), ("drop", False)])
def test_the_manifest_counts_lost_tokens(over, shuffle, batch_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    (tmp_path / "corpus.txt").write_text("|".join(TEXTS))
    plan = plan_token_files(NARROW, max_length=11, over_length=over, end_of_document="<|end|>")
    how = {"corpus_format": CorpusFormat(separator="|"), "shuffle": shuffle}
    encode_corpus(NARROW, [tmp_path / "corpus.txt"], tmp_path / "t", plan, **how)
    verify_token_files(tmp_path / "t", tokenizer=NARROW)
    files = TokenFiles.open(tmp_path / "t")
    # With the end id a text of 10 letters is exactly 11 ids long.
    (split,) = files.manifest.splits
    documents = [files.document(index).tolist() for index in range(split.n_documents)]
    lengths = [len(document) for document in documents]
    if over == "truncate":
        assert split.lost == LostTokens(2, 0, 390 + 1)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11, 11, 11]
        assert split.n_bytes == sum(map(len, TEXTS))
        assert files.manifest.bytes_per_token("train") == 1.0  # of whole documents, without ends
    else:
        assert split.lost == LostTokens(0, 2, 401 + 12)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11]
        assert split.n_bytes == 3 + 9 + 1 + 10 + 0 + 5
    assert all(document[-1] == 258 for document in documents)
    if not shuffle:
        assert lengths[:2] == [4, 10]


@pytest.mark.parametrize("normalizer", ["none", "nfc"])
@pytest.mark.parametrize("end", ["", "<|end|>"])
def test_truncated_documents_are_compared_with_the_beginning_of_their_text(
    end, normalizer, tmp_path
):
    tokenizer = Tokenizer.from_spec(replace(NARROW.spec, normalizer=normalizer_of(normalizer)))
    texts = ["ab\u0301", "é漢" * 9, "ab e\u0301" * 5, "", "x" * 10]
    (tmp_path / "corpus.txt").write_text("|".join(texts))
    plan = plan_token_files(tokenizer, max_length=10, end_of_document=end)
    how = CorpusFormat(separator="|")
    encode_corpus(tokenizer, [tmp_path / "corpus.txt"], tmp_path / "t", plan, corpus_format=how)
    verify = partial(verify_token_files, tmp_path / "t", tokenizer=tokenizer)
    found = verify(texts={"train": texts})
    assert (found.n_texts, found.n_lossy) == (5, int(normalizer == "nfc"))
    for index, other in ((0, "ab"), (0, "ab\u0301c"), (1, "é漢é"), (1, "漢é" * 9), (4, "x" * 8)):
        wrong = [*texts[:index], other, *texts[index + 1 :]]
        with pytest.raises(TokenFilesCorruptError, match=f"document {index} of train does not"):
            verify(texts={"train": wrong})


def test_a_longer_document_is_refused_and_found(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="", max_length=3)
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        with pytest.raises(TokenFilesPlanError, match="has 4 ids, and the plan's max_length is 3"):
            writer.append([1, 2, 3, 4])
        writer.append([1, 2, 3])
        manifest = writer.finish()
    shorter = replace(manifest, plan=replace(plan, max_length=2)).to_json()
    (tmp_path / "t" / "manifest.json").write_bytes(shorter)
    with pytest.raises(TokenFilesCorruptError, match="a document of 3 ids"):
        verify_token_files(tmp_path / "t")


RESUMED = [f"document {index}, " * (index % 9) + "é 東京 ab" for index in range(60)]
LONG = "Ein Wort, <|begin|> ein Wort: ab. " * 400


class Interrupted(Exception):  # noqa: N818 - not an error of the library
    pass


def write_mixed_corpus(folder):
    """Plain text with a document longer than a piece, packed JSON lines, and an empty file."""
    plain, packed, empty = folder / "a.txt", folder / "b.jsonl.gz", folder / "c.txt"
    plain.write_text("<|end|>".join([*RESUMED[:30], LONG, *RESUMED[30:]]))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in [*RESUMED, LONG * 4, "", "last"])
    packed.write_bytes(gzip.compress(lines.encode()))
    empty.write_text("")
    return [plain, packed, empty]


def encode_until(folder, files, plan, stop_after=None, **how):
    """Encode until this many batches are done; return the number of batches."""
    n_batches = 0

    def count(progress):
        nonlocal n_batches
        n_batches += 1
        if n_batches == stop_after:
            raise Interrupted

    options = {"validation_share": 0.3, "corpus_format": CorpusFormat(separator="<|end|>")} | how
    tokenizer = WIDE if plan.dtype == "uint32" else NARROW
    encode_corpus(tokenizer, files, folder, plan, progress=count, **options)
    return n_batches


@pytest.fixture
def batches(monkeypatch):
    small_batches(monkeypatch, 3000, 900)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("layout", ["npy", "megatron", "llmc", "parquet"])
def test_resuming_after_any_batch_gives_the_same_bytes(layout, shuffle, tmp_path, monkeypatch):
    files = write_mixed_corpus(tmp_path)
    plan = plan_token_files(
        WIDE if layout == "npy" else NARROW,
        layout=layout,
        allowed_special="all",
        tokens_per_shard=5000,
        begin_of_document="<|begin|>",
        end_of_document="<|end|>",
        seed=3,
    )
    n_batches = encode_until(tmp_path / "expected", files, plan, shuffle=shuffle)
    assert n_batches > 20
    # Stop once in each document, the first of which is long, and at the very end.
    for stop in (2, 8, 2 * n_batches // 3, n_batches):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(Interrupted):
            encode_until(folder, files, plan, stop, shuffle=shuffle, workers=1 + stop % 2)
        # Some documents stay whole in their shards: no checkpoint within the first one.
        assert can_resume(folder) or (layout in ("megatron", "parquet") and stop < 8)
        if not shuffle:
            monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 3500 + stop)
        how = {"shuffle": shuffle, "resume": True, "workers": 1 + (stop + 1) % 2}
        left = encode_until(folder, files, plan, **how)
        assert left < n_batches or stop < 8, "it began anew"
        assert content(folder) == content(tmp_path / "expected")
        assert not can_resume(folder)
        assert encode_until(folder, files, plan, **how) == 0, "it is complete"
        monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 3000)


WORD = AddedToken("<x>", len(NARROW.spec.vocab) + 9, special=True, single_word=True)
LOWERED = parse_tokenizer_json(
    file_of({"type": "Lowercase"}, [("<X>", True)])
)  # found in the normalized text


# One needs white space around it to be found, the other one a normalized text.
@pytest.mark.parametrize("spec", [NARROW.spec.with_added_tokens([WORD]), LOWERED])
def test_a_forbidden_token_that_gives_no_id_is_found_in_the_text(spec, tmp_path):
    tokenizer = Tokenizer.from_spec(spec)
    plan = plan_token_files(
        tokenizer, end_of_document="", allowed_special="none", disallowed_special="all"
    )
    file = write_corpus(tmp_path / "a.txt", ["a<x>b"], "txt")
    with pytest.raises(SpecialTokenForbiddenError, match=r"<[xX]>"):
        encode_corpus(tokenizer, file, tmp_path / "t", plan)


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("allowed", ["all", "none", ["<|begin|>"]])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_run_that_a_special_token_ended_goes_on_with_a_choice(shuffle, allowed, tmp_path):
    files = write_mixed_corpus(tmp_path)[::-1]
    plans = [
        plan_token_files(NARROW, end_of_document="", allowed_special=chosen, disallowed_special=no)
        for chosen, no in (("none", "all"), (allowed, ()))
    ]
    n_batches = encode_until(tmp_path / "expected", files, plans[1], shuffle=shuffle)
    for _ in range(2):
        with pytest.raises(SpecialTokenForbiddenError):
            encode_until(tmp_path / "t", files, plans[0], shuffle=shuffle, resume=True)
    left = encode_until(tmp_path / "t", files, plans[1], shuffle=shuffle, resume=True)
    assert 1 < left < n_batches
    assert content(tmp_path / "t") == content(tmp_path / "expected")
    # Texts may have tokens about which an earlier plan decided otherwise.
    with pytest.raises(Interrupted):
        encode_until(tmp_path / "decided", files, plans[1], n_batches - 1, shuffle=shuffle)
    others = plan_token_files(NARROW, end_of_document="", allowed_special=["<|end|>"])
    for other in (plans[0], others):
        with pytest.raises(TokenFilesPlanError, match=r"another plan \(special tokens\)"):
            encode_until(tmp_path / "decided", files, other, shuffle=shuffle, resume=True)


@pytest.mark.usefixtures("batches")
def test_other_files_or_settings_are_refused(tmp_path):
    files = write_mixed_corpus(tmp_path)
    plan = plan_token_files(NARROW, end_of_document="", allowed_special="all")
    n_batches = encode_until(tmp_path / "expected", files, plan)
    with pytest.raises(Interrupted):
        encode_until(tmp_path / "t", files, plan, 10)
    with pytest.raises(Interrupted):  # while it writes the shuffled documents
        encode_until(tmp_path / "shuffled", files, plan, n_batches + 3, shuffle=True)
    with TokenFilesWriter(tmp_path / "another caller's", plan) as writer:
        writer.append([97, 98])
        writer.checkpoint({"line": 1})

    def refused(match, name="t", files=files, **how):
        with pytest.raises(TokenFilesPlanError, match=match):
            encode_until(tmp_path / name, files, plan, resume=True, **how)

    refused(
        "other settings: validation share; go on with the same, or start anew", validation_share=0.2
    )
    refused("other settings: separator", corpus_format=CorpusFormat(separator="<|begin|>"))
    refused(r"other settings: files \(in another order\); go on", files=files[::-1])
    refused(r"settings: files \(missing: 'b.jsonl.gz', 'c.txt'\)", files=files[:1])
    more = write_corpus(tmp_path / "more.txt", ["a"], "txt")
    refused(r"settings: files \(new: 'more.txt'\); go on", files=[*files, more])
    refused("begun with other settings: shuffle", shuffle=True)
    refused("begun with other settings: shuffle", "shuffled")
    for shuffle in (False, True):
        refused(
            "other settings: files; go on with the same, or", "another caller's", shuffle=shuffle
        )
    begun = files[0].stat()
    os.utime(files[0], ns=(begun.st_atime_ns, begun.st_mtime_ns + 1))
    refused("'a.txt' has changed since encoding was", "shuffled", shuffle=True)
    assert encode_until(tmp_path / "t", files, plan, resume=True) == n_batches
    with pytest.raises(TokenFilesError, match=r"continue it .*, or remove .*/\.shuffled\.partial"):
        encode_until(tmp_path / "shuffled", files, plan)
    shutil.rmtree(tmp_path / ".shuffled.partial")
    encode_until(tmp_path / "shuffled", files, plan)
    for name in ("t", "shuffled"):
        assert content(tmp_path / name) == content(tmp_path / "expected")


BAD = {"txt": b"half \xe2\x82", "jsonl.gz": b'{"text": "\\udc00"}', "parquet": None}


def write_bad_corpus(folder, *, is_bad):
    """The same texts in three formats, each with one more that is bad or missing."""
    folder.mkdir()
    files = [folder / f"corpus.{kind}" for kind in BAD]
    texts = [*RESUMED[:30], LONG, *RESUMED[30:]]
    plain = [text.encode() for text in texts]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    rows = [*texts]
    if is_bad:
        for documents, bad in zip((plain, lines, rows), BAD.values(), strict=True):
            documents.insert(40, bad)
    files[0].write_bytes(b"<|end|>".join(plain))
    files[1].write_bytes(gzip.compress(b"\n".join(lines)))
    parquet.write_table(pa.table({"text": pa.array(rows, pa.string())}), files[2])
    return files


@pytest.mark.row(46)
@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("engine", ["auto", "python"])
def test_bad_documents_of_every_format_are_left_out(engine, tmp_path):
    tokenizer = Tokenizer.from_spec(NARROW.spec, engine=engine)
    plan = plan_token_files(
        tokenizer,
        begin_of_document="<|begin|>",
        end_of_document="<|end|>",
        max_length=300,
        allowed_special="all",
    )
    how = {"corpus_format": CorpusFormat(separator="<|end|>"), "max_bad": 0.02}
    bad = write_bad_corpus(tmp_path / "bad", is_bad=True)
    good = write_bad_corpus(tmp_path / "good", is_bad=False)
    manifest = encode_corpus(tokenizer, bad, tmp_path / "t", plan, workers=2, **how)
    expected = encode_corpus(tokenizer, good, tmp_path / "expected", plan, **how)
    assert manifest.splits == expected.splits
    assert expected.bad_documents.to_fields() == {"reasons": {}, "first": []}
    assert manifest.bad_documents.to_fields() == {
        "reasons": {"invalid_utf8": 1, "lone_surrogate": 1, "null": 1},
        "first": [
            {"file": "corpus.txt", "line": 1, "reason": "invalid_utf8"},
            {"file": "corpus.jsonl.gz", "line": 41, "reason": "lone_surrogate"},
            {"file": "corpus.parquet", "row": 41, "reason": "null"},
        ],
    }
    how |= {"validation_share": 0.3, "shuffle": True}
    encode_corpus(tokenizer, bad, tmp_path / "shuffled", plan, **how)
    storage = {"storage": tmp_path / "run", "executor": LocalExecutor(1), "shard_bytes": 5000}
    encode_distributed(tokenizer, bad, tmp_path / "by workers", plan, **how, **storage)
    assert content(tmp_path / "by workers") == content(tmp_path / "shuffled")


@pytest.mark.row(46)
@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("layout", ["npy", "megatron", "llmc"])
def test_a_mended_file_is_continued_after_the_last_whole_file(layout, shuffle, tmp_path):
    tokenizer = WIDE if layout == "npy" else NARROW
    plan = plan_token_files(
        tokenizer,
        layout=layout,
        tokens_per_shard=5000,
        seed=3,
        end_of_document="<|end|>",
        allowed_special="all",
    )
    files = write_bad_corpus(tmp_path / "mended", is_bad=True)
    good = write_bad_corpus(tmp_path / "good", is_bad=False)
    with pytest.raises(CorpusError, match=r"corpus\.txt' is not UTF-8"):
        encode_until(tmp_path / "t", files, plan, shuffle=shuffle)
    files[0].write_bytes(good[0].read_bytes())
    # It begins anew, because no file is whole; later it continues after the first one.
    for _ in range(2):
        with pytest.raises(CorpusError, match=r"corpus\.jsonl\.gz', line 41"):
            encode_until(tmp_path / "t", files, plan, shuffle=shuffle, resume=True)
    files[1].write_bytes(good[1].read_bytes())
    first = []
    how = {"validation_share": 0.3, "corpus_format": CorpusFormat(separator="<|end|>")}
    how |= {"shuffle": shuffle, "max_bad": 0.02}
    encode_corpus(tokenizer, files, tmp_path / "t", plan, resume=True, progress=first.append, **how)
    encode_corpus(tokenizer, files, tmp_path / "expected", plan, **how)
    assert content(tmp_path / "t") == content(tmp_path / "expected")
    assert len(RESUMED) < first[0].n_documents < 2 * len(RESUMED)


@pytest.mark.row(46)
@pytest.mark.usefixtures("batches")
def test_too_many_bad_documents_end_the_run_and_keep_the_checkpoint(tmp_path):
    files = write_bad_corpus(tmp_path / "bad", is_bad=True)
    plan = plan_token_files(NARROW, end_of_document="", allowed_special="all")
    for name in ("t", "mended"):
        with pytest.raises(TooManyBadDocumentsError, match=r"3 bad .* of 186 documents, more"):
            encode_until(tmp_path / name, files, plan, max_bad=0.01)
    assert encode_until(tmp_path / "t", files, plan, max_bad=0.02, resume=True) == 1
    n_batches = encode_until(tmp_path / "expected", files, plan, max_bad=0.02)
    assert content(tmp_path / "t") == content(tmp_path / "expected")
    # The first file keeps its bad document, the second is read again.
    good = write_bad_corpus(tmp_path / "good", is_bad=False)
    files[1].write_bytes(good[1].read_bytes())
    left = encode_until(tmp_path / "mended", files, plan, max_bad=0.02, resume=True)
    assert 1 < left < n_batches
    encode_until(tmp_path / "expected mended", files, plan, max_bad=0.02)
    assert content(tmp_path / "mended") == content(tmp_path / "expected mended")


@pytest.mark.parametrize(
    "position", [CorpusPosition(n_documents=99, n_in_file=99), CorpusPosition(n_bytes=3)]
)
def test_a_file_that_has_fewer_documents_now_is_refused(position, tmp_path):
    (tmp_path / "a.txt").write_text("one|two")
    cuts = DocumentCuts(plan_token_files(NARROW, end_of_document=""), NARROW.spec)
    how = CorpusFormat(separator="|")
    with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed"):
        list(iterate_batches([str(tmp_path / "a.txt")], how, cuts, position, 50))


@pytest.mark.usefixtures("batches")
def test_files_in_stores_are_resumed_unless_they_changed(tmp_path):
    store = fsspec.filesystem("memory")
    paths = write_mixed_corpus(tmp_path)
    plan = plan_token_files(NARROW, end_of_document="", allowed_special="all")
    store.pipe({f"/resume/{path.name}": path.read_bytes() for path in paths})
    files = [f"memory://resume/{path.name}" for path in paths]
    n_batches = encode_until(tmp_path / "expected", paths, plan)
    try:
        for name in ("t", "u"):
            with pytest.raises(Interrupted):
                encode_until(tmp_path / name, files, plan, n_batches // 2)
        assert encode_until(tmp_path / "t", files, plan, resume=True) < n_batches
        assert content(tmp_path / "t") == content(tmp_path / "expected")
        store.pipe(f"/resume/{paths[0].name}", paths[0].read_bytes())
        assert encode_until(tmp_path / "u", files, plan, resume=True) == n_batches
    finally:
        store.rm("/resume", recursive=True)


def test_checkpoints_take_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    now = 0.0
    written = []

    class Writer:
        can_checkpoint = True

        def checkpoint(self, position):
            nonlocal now
            written.append(now)
            now += 1.0  # a slow disk

    monkeypatch.setattr(time, "monotonic", lambda: now)
    checkpoints = encoding_run._Checkpoints(Writer())
    while now < 200:
        checkpoints.write_if_due(dict)
        now += 0.5
    assert written == [5.0, 56.0, 107.0, 158.0]


def split_documents(folder):
    files = TokenFiles.open(folder)
    return {
        split.name: [files.document(n, split.name).tobytes() for n in range(split.n_documents)]
        for split in files.manifest.splits
    }


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_a_shuffle_is_a_permutation_of_all_documents(layout, tmp_path):
    files = write_mixed_corpus(tmp_path)
    planned = {"layout": layout, "tokens_per_shard": 5000, "end_of_document": "<|end|>"}
    planned["allowed_special"] = "all"
    for name, seed, how in (
        ("a", 7, {}),
        ("b", 7, {"shuffle": True}),
        ("c", 8, {"shuffle": True}),
        ("d", 7, {"shuffle": True, "workers": 2}),
    ):
        encode_until(tmp_path / name, files, plan_token_files(NARROW, seed=seed, **planned), **how)
    in_order, found, other = (split_documents(tmp_path / name) for name in "abc")
    for split, documents in found.items():
        assert sorted(documents) == sorted(in_order[split])
        assert documents != in_order[split]
        # No buffer limits the order: documents of the first half appear everywhere.
        places = [documents.index(document) for document in in_order[split][: len(documents) // 2]]
        assert max(places) > len(documents) * 0.8
    assert other["train"] != found["train"]
    assert content(tmp_path / "d") == content(tmp_path / "b")
    manifests = [TokenFiles.open(tmp_path / name).manifest for name in "ab"]
    assert manifests[0].sources == manifests[1].sources
    n_bytes = [[split.n_bytes for split in manifest.splits] for manifest in manifests]
    assert n_bytes[0] == n_bytes[1]
    verify_token_files(tmp_path / "b", tokenizer=NARROW)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_progress_names_the_second_phase(tmp_path):
    seen = []
    files = write_mixed_corpus(tmp_path)
    plan = plan_token_files(NARROW, end_of_document="", allowed_special="all")
    encode_corpus(NARROW, files, tmp_path / "t", plan, shuffle=True, progress=seen.append)
    assert {now.phase for now in seen} == {"encoding", "shuffling"}
    last = seen[-1]
    opened = TokenFiles.open(tmp_path / "t")
    assert last.bytes_done == last.bytes_total == 2 * last.n_tokens == 2 * opened.n_tokens()
    assert last.n_documents == opened.n_documents()
    (tmp_path / "t" / "train.bin").write_bytes(b"12")
    with pytest.raises(TokenFilesCorruptError, match="ends before a document does"):
        list(document_shuffle.shuffle_documents(opened, 0, document_shuffle.ShufflePosition()))


@pytest.mark.parametrize(("separator", "shuffle", "workers"), [(None, False, 2), ("\n", True, 1)])
def test_memory_does_not_grow_with_the_corpus(separator, shuffle, workers, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(document_shuffle, "BATCH_TOKENS", 1 << 16)
    files, plan = [tmp_path / "a.txt"], plan_token_files(NARROW, end_of_document="")
    files[0].write_bytes(b"some words of a document\n" * 20 + b"x " * 8_000_000)
    how = {"corpus_format": CorpusFormat(separator=separator), "workers": workers}
    tracemalloc.start()
    try:
        encode_corpus(NARROW, files, tmp_path / "t", plan, shuffle=shuffle, **how)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 12 << 20, "the ids alone are 32 megabytes"
