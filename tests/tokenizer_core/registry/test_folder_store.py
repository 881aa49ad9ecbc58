"""The store in a folder: complete, verified, immutable versions; the pointer; refused damage."""

import dataclasses
import hashlib
import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.tokenizer_core.formats.small_specs import BYTES, trained_spec, wild_ranks
from tokenizer_core import Tokenizer
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactInUseError,
    ArtifactNameError,
    ArtifactNotFoundError,
)
from tokenizer_core.formats.manifest_fields import MANIFEST
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.spec.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_core.splitting.patterns import SplitPattern

A = TokenizerSpec.from_merges(
    BYTES | {256: b"ab", 257: b"abc"}, [(b"a", b"b"), (b"ab", b"c")], ["<|x|>"]
)
B = TokenizerSpec.from_merges(
    BYTES | {256: b"xy", 257: b"ab"}, [(b"x", b"y"), (b"a", b"b")], ["<|x|>"]
)
RICH = trained_spec(
    pattern="qwen2",
    normalizer="nfc",
    ignore_merges=True,
    special_tokens=[AddedToken("<|a|>", 900), AddedToken("<b>", 905, special=False)],
    prefix_ids=(900,),
    suffix_ids=(905,),
)
SPECS = {
    "plain": A,
    "rich": RICH,
    "ranks": TokenizerSpec.from_ranks(wild_ranks(4), {"<|x|>": 999}, pattern="cl100k"),
    "custom pattern": trained_spec(pattern=SplitPattern("custom", r"\s+|\S+")),
    "tiktoken's": TokenizerSpec.from_ranks(wild_ranks(4), pattern=r"[\w&&[^\d]]+| ?[^\w\s]+"),
    "hugging face's": trained_spec(
        pattern=SplitPattern("custom", r"(?=(\d{3})+(?!\d))|\h+$", "oniguruma")
    ),
}


CHAT = ChatTemplates({"tool_use": "t", "default": "é\r\n"}, {"eos_token": "<|x|>"})
TALKING = A.with_chat(CHAT)


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


def folder_of(store, ref):
    return store.root / "tokenizers" / ref.name / ref.version


@pytest.mark.parametrize("name", SPECS)
def test_a_published_spec_is_opened(name, store):
    ref = store.publish(SPECS[name], name="t")
    assert store.open(ref) == SPECS[name]
    assert ref.digest == SPECS[name].fingerprint
    assert store.resolve("t") == store.resolve(str(ref)) == ref
    assert store.list() == store.versions("t") == [ref]
    store.verify(ref)


def test_the_manifest_describes_the_origin(store):
    origin = {
        "training": {"seconds": 1.5, "longest_token": "the"},
        "provenance": [{"name": "corpus.txt", "size_bytes": 5, "sha256": "0" * 64}],
        "command": "tokenizer train corpus.txt",
    }
    ref = store.publish(RICH, name="t", **origin)
    fields = store.read_manifest(ref).to_dict()
    assert {name: fields[name] for name in origin} == origin
    assert (fields["name"], fields["version"]) == ("t", ref.version)
    assert fields["fingerprint"] == RICH.fingerprint
    assert fields["pattern"]["name"] == "qwen2"
    assert fields["added_tokens"][1] == {"content": "<b>", "id": 905, "special": False}
    assert fields["gaps"] == [[356, 899], [901, 904]]
    assert fields["largest_id"] == 905
    assert fields["libraries"]["python"] == ".".join(map(str, sys.version_info[:3]))
    age = datetime.now(UTC) - datetime.fromisoformat(fields["created_at"])
    assert timedelta(0) <= age < timedelta(minutes=1)


def test_the_newest_version_is_not_published_twice(store):
    first = store.publish(A, name="t")
    assert store.publish(A, name="t", command="again") == first
    other = store.publish(B, name="t")
    again = store.publish(A, name="t")
    assert store.resolve("t") == again
    assert store.versions("t") == [first, other, again]


@pytest.mark.promise(16)
def test_versions_increase_within_a_second_and_when_the_clock_goes_back(store, monkeypatch):
    specs = [trained_spec(n) for n in range(1, 8)]
    refs = [store.publish(spec, name="t") for spec in specs[:5]]

    class Past(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2001, 1, 1, tzinfo=tz)

    monkeypatch.setattr("tokenizer_core.registry.versions.datetime", Past)
    refs += [store.publish(spec, name="t") for spec in specs[5:]]
    assert store.versions("t") == refs
    assert [ref.version for ref in refs] == sorted({ref.version for ref in refs})
    assert store.resolve("t") == refs[-1]


BAD_NAMES = [
    *["", ".", "..", "../x", "a/b", "/etc", "A", "-a", "_a", "a b", "a\0", "é", "a" * 65],
    *["active", "a\n", ".staging", "a@b", "a%2e"],
]


def test_invalid_names_are_refused(store):
    version = store.publish(A, name="t").version
    for name in BAD_NAMES:
        for call in (
            store.open,
            store.read_manifest,
            lambda ref: store.read_file(ref, "vocab.pkl"),
            lambda ref: store.publish(A, name=ref.name),
            lambda ref: store.remove(ref.name, ref.version),
            lambda ref: store.resolve("" if ref.name in ("active", "a@b") else ref.name),
        ):
            with pytest.raises(ArtifactNameError, match="invalid name"):
                call(ArtifactRef(name, version, A.fingerprint))
    assert [path.name for path in store.root.parent.iterdir()] == ["artifacts"]


BAD_VERSIONS = [
    *["", "../x", "..", "20261121T041500Z", "20261121T041500Z-1a2b3c4g", "x" * 500],
    *["20261121T041500Z-1a2b3c4d\n", "20261121T041500Z-1a2b3c4d/../x"],
]


@pytest.mark.row(28)
def test_invalid_versions_are_refused(store):
    store.publish(A, name="t")
    for version in BAD_VERSIONS:
        for call in (lambda version: store.resolve(f"t@{version}"), partial(store.remove, "t")):
            with pytest.raises(ArtifactNameError, match="invalid name"):
                call(version)
    assert len(store.versions("t")) == 1


@pytest.mark.row(28)
def test_a_missing_tokenizer_or_version_is_named(store):
    assert (store.list(), store.names(), store.versions("t"), store.active()) == ([], [], [], None)
    with pytest.raises(ArtifactNotFoundError, match="there are: none"):
        store.resolve("t")
    ref = store.publish(A, name="t")
    for call, message in (
        (lambda: store.resolve("other"), "there are: t"),
        (lambda: store.resolve("t@20010101T000000Z-00000000"), "no version"),
        (lambda: store.read_file(ref, "passwd"), "no file 'passwd'"),
        (lambda: store.read_file(ref, "../../../active.json"), "no file"),
        (lambda: store.resolve("active"), "no tokenizer is active"),
    ):
        with pytest.raises(ArtifactNotFoundError, match=message):
            call()


def test_a_reference_with_another_digest_does_not_open(store):
    ref = store.publish(A, name="t")
    wrong = dataclasses.replace(ref, digest=B.fingerprint)
    for call in (store.open, store.read_manifest, store.promote):
        with pytest.raises(ArtifactCorruptError, match="is not the tokenizer of digest"):
            call(wrong)
    with pytest.raises(ArtifactCorruptError, match="digest"):
        store.read_file(wrong, "manifest.json")
    read_file = partial(store.read_file, filename="manifest.json")
    for call in (store.open, store.load, store.read_manifest, store.promote, read_file):
        with pytest.raises(TypeError, match=r"store\.resolve\('NAME'\).*'t'"):
            call("t")


# Damage


def damaged(store, ref, name, data):
    (folder_of(store, ref) / name).write_bytes(data)
    with pytest.raises(ArtifactCorruptError):
        store.read_file(ref, name)
    with pytest.raises(ArtifactCorruptError, match=f"^{ref.name}@") as caught:
        store.open(ref)
    return str(caught.value)


@pytest.mark.row(30)
@pytest.mark.parametrize("name", ["vocab.pkl", "merges.pkl", "manifest.json", CHAT_FILE])
def test_a_file_cut_short_or_changed_in_a_bit_is_refused(name, store):
    ref = store.publish(TALKING, name="t")
    data = (folder_of(store, ref) / name).read_bytes()
    assert store.read_file(ref, name) == data
    for place in range(0, len(data), 7):
        damaged(store, ref, name, data[:place])
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        reason = damaged(store, ref, name, changed)
        # The store compares hashes first: it does not even parse a changed pickle.
        assert "another sha256" in reason or name == "manifest.json"
    damaged(store, ref, name, data + b"\n")
    again = store.publish(TALKING, name="t")
    assert again != ref
    assert store.open(again) == TALKING
    (folder_of(store, ref) / name).write_bytes(data)
    assert store.open(ref) == TALKING


def forge(store, ref, vocab=None, merges=None, chat=None, record=(), **fields):
    """Write files and a manifest with correct hashes and seal, as a mistaken tool might."""
    folder = folder_of(store, ref)
    table = MANIFEST.parse((folder / "manifest.json").read_bytes())
    for name, value in (("vocab.pkl", vocab), ("merges.pkl", merges), (CHAT_FILE, chat)):
        if value is None:
            continue
        data = value if isinstance(value, bytes) else render_pickle(value)
        (folder / name).write_bytes(data)
        found = table["chat_templates"] if name == CHAT_FILE else table["files"][name]
        found |= {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    table["chat_templates"] |= record
    (folder / "manifest.json").write_bytes(MANIFEST.render({**table, **fields}))


ONE_MERGE_MORE = (*A.merges, (b"c", b"c"))
FORGED = {
    "vocabulary of A with merges of B": ({"merges": B.merges}, "another vocabulary"),
    "a merge whose product is missing": ({"merges": ONE_MERGE_MORE}, "needs the token b'cc'"),
    "an undeclared gap": ({"vocab": {**A.vocab, 300: b"q"}}, "ids 259 to 299"),
    "an empty vocabulary": ({"vocab": {}}, "empty"),
    "a pickle that calls": ({"vocab": b"\x80\x04cos\nsystem\n."}, "does not start with"),
    "the files swapped": ({"vocab": [*A.merges], "merges": dict(A.vocab)}, "no dict"),
    "another name": ({"name": "other"}, "that of other@"),
    "another version": ({"version": "20010101T000000Z-00000000"}, "that of t@2001"),
    "another kind": ({"kind": "ranks"}, "there are merges"),
    "a file of the wrong size": ({"files": {"vocab.pkl": {}, "merges.pkl": {}}}, "malformed"),
    "a third file": ({"files": {"x": {"sha256": "0" * 64, "size_bytes": 1}}}, "must list"),
    "malformed chat templates": ({"chat_templates": []}, "chat_templates is malformed"),
    "no hash of the templates": ({"record": {"sha256": "x"}}, "no sha256 in hexadecimal"),
    "no size of the templates": ({"record": {"size_bytes": "1"}}, "no integer"),
    "other templates": ({"record": {"templates": {}}}, "that the manifest lists"),
    "a template with the name of a path": (
        {"chat": CHAT.to_json().replace(b"tool_use", b"../../..")},
        "of a chat template",
    ),
    "no templates": ({"chat": b"{}"}, "malformed: KeyError"),
    "provenance of another type": ({"provenance": None}, "malformed"),
    "other Unicode tables": ({"unicode_tables": "regex 2031.1.1"}, "do not belong together"),
    "an added token without entry": (
        {"added_tokens": [{"content": "<|y|>", "id": 258, "special": True}]},
        "not in the vocabulary",
    ),
}


@pytest.mark.row(30)
@pytest.mark.parametrize("name", FORGED)
def test_files_that_do_not_match_are_refused_with_the_reason(name, store):
    ref = store.publish(TALKING, name="t")
    changes, message = FORGED[name]
    forge(store, ref, **changes)
    with pytest.raises(ArtifactCorruptError, match=message):
        store.open(ref)
    with pytest.raises(ArtifactCorruptError):
        store.promote(ref)


def test_a_manifest_with_impossible_values_is_damaged_and_hides_no_other(store):
    ref, other = store.publish(A, name="t"), store.publish(A, name="u")
    path = folder_of(store, ref) / "manifest.json"
    sound = path.read_bytes()
    control = dataclasses.replace(store.read_manifest(ref), name="a\nb\x1b").to_json()
    impossible = [sound.replace(b"null", value, 1) for value in (b'"\\ud800"', b"1e999")]
    for data in (*impossible, control):
        path.write_bytes(data)
        assert store.list() == [other]
        ((name, reason),) = store.damaged().items()
        assert name == str(ref)
        assert reason.isprintable()
    store.remove(ref.name, ref.version)
    assert store.damaged() == {}


@pytest.mark.parametrize(
    "path", ["t/VERSION/vocab.pkl", "t/VERSION/extra", "t/VERSION", "t", "active.json"]
)
def test_links_are_refused(path, store, tmp_path):
    ref = store.publish(A, name="t")
    store.promote(ref)
    linked = store.root / "tokenizers" / path.replace("VERSION", ref.version)
    if path == "active.json":
        linked = store.root / path
    if linked.exists():
        linked.rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").write_bytes(b"")
    linked.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactCorruptError, match="symbolic link"):
        store.active() if path == "active.json" else store.open(ref)


def test_a_missing_file_and_a_fifo_are_refused(store):
    ref = store.publish(TALKING, name="t")
    for name in ("vocab.pkl", "manifest.json", CHAT_FILE):
        path = folder_of(store, ref) / name
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(ArtifactCorruptError, match=f"{name} is missing"):
            store.open(ref)
        os.mkfifo(path)
        with pytest.raises(ArtifactCorruptError, match="not a regular file"):
            store.open(ref)
        path.unlink()
        path.mkdir()
        with pytest.raises(ArtifactCorruptError, match=f"{name} is a folder"):
            store.open(ref)
        path.rmdir()
        path.write_bytes(data)
    store.open(ref)


def test_what_cannot_be_opened_again_is_not_published(store, monkeypatch):
    with pytest.raises(ArtifactError, match="cannot publish"):
        store.publish(dataclasses.replace(A, merges=((b"q", b"z"),)), name="t")
    for bad in ({"x": float("nan")}, {"x": b"bytes"}):
        with pytest.raises(ArtifactError, match="JSON"):
            store.publish(A, name="t", training=bad)
    encode = Tokenizer.encode_ordinary
    monkeypatch.setattr(Tokenizer, "encode_ordinary", lambda self, text: encode(self, text)[:-1])
    with pytest.raises(ArtifactCorruptError, match="golden text"):
        store.publish(A, name="t")
    assert store.names() == []
    assert [path.name for path in (store.root / "tokenizers").iterdir()] == [".staging"]
    assert list((store.root / "tokenizers" / ".staging").iterdir()) == []


# The pointer


def test_promote_and_back(store):
    a, b = store.publish(A, name="t"), store.publish(B, name="u")
    assert store.promote(a) is None
    assert store.previously_active() is None
    assert store.promote(b) == a
    assert store.promote(b) == b
    assert store.previously_active() == a
    assert store.promote(a) == b
    assert store.active() == store.resolve("active") == a
    table = json.loads((store.root / "active.json").read_text())
    assert (table["active"], table["digest"], table["previous"]) == (str(a), a.digest, str(b))


def test_the_history_of_active_versions(store):
    a, b, c = (store.publish(A, name=name) for name in "abc")
    for ref in (a, b, c):
        store.promote(ref)
    assert store.history() == [str(b), str(a)]
    store.promote(b)
    assert store.history() == [str(c), str(a)]
    store.promote(c)
    store.promote(b, forget_current=True)  # c was never served
    assert store.history() == [str(a)]
    more = [store.publish(spec, name="n") for spec in (A, B) * 6]
    for ref in more:
        store.promote(ref)
    assert store.history() == [str(ref) for ref in (*more[10:1:-1], b, a)]
    path = store.root / "active.json"
    path.write_text(path.read_text().replace('"earlier": [', '"earlier": ["../x@y", '))
    with pytest.raises(ArtifactCorruptError, match="names no version"):
        store.history()


@pytest.mark.row(31)
def test_a_garbage_pointer_is_an_error_and_can_be_replaced(store):
    ref = store.publish(A, name="t")
    store.promote(ref)
    path = store.root / "active.json"
    path.write_text(path.read_text().replace(A.fingerprint, B.fingerprint))
    with pytest.raises(ArtifactCorruptError, match="another digest"):
        store.active()
    for data in (
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"active": null, "digest": "", "previous": null, "changed_at": ""}',
        b'{"active": "../x@y", "digest": "", "previous": null, "changed_at": ""}',
        b'{"active": "t@20010101T000000Z-00000000"}',
        b"{" * 60_000,
        b"x" * 100_000,
    ):
        path.write_bytes(data)
        for call in (store.active, store.previously_active, lambda: store.resolve("active")):
            with pytest.raises(ArtifactCorruptError, match=r"^active\.json"):
                call()
        assert store.promote(ref) is None
        assert store.active() == ref


@pytest.mark.row(31)
def test_a_dangling_pointer_is_an_error_and_can_be_replaced(store):
    a, b = store.publish(A, name="t"), store.publish(B, name="u")
    store.promote(a)
    store.promote(b)
    shutil.rmtree(store.root / "tokenizers" / "u")
    with pytest.raises(ArtifactNotFoundError):
        store.active()
    assert store.previously_active() == a
    assert store.promote(a) is None


# Several processes


def test_a_version_is_removed_and_the_others_stay(store):
    old, new = store.publish(A, name="t"), store.publish(B, name="t")
    store.promote(new)
    store.remove(old.name, old.version)
    assert store.list() == [new]
    for call in (store.open, lambda ref: store.remove(ref.name, ref.version)):
        with pytest.raises(ArtifactNotFoundError):
            call(old)
    with pytest.raises(ArtifactInUseError):
        store.remove(new.name, new.version)
    last = store.publish(A, name="u")
    store.remove(last.name, last.version)
    assert store.names() == ["t"]
    assert not (store.root / "tokenizers" / "u").exists()


def test_a_version_removed_meanwhile_is_not_promoted(store, monkeypatch):
    ref = store.publish(A, name="t")
    opened = store.open

    def open_and_remove(ref):
        spec = opened(ref)
        store.remove(ref.name, ref.version)
        return spec

    monkeypatch.setattr(store, "open", open_and_remove)
    with pytest.raises(ArtifactNotFoundError):
        store.promote(ref)
    assert store.active() is None


def test_chat_templates_belong_to_a_version(store):
    plain = store.publish(A, name="t")
    talking = store.publish(TALKING, name="t")
    assert talking.version > plain.version
    assert talking.digest == plain.digest == A.fingerprint
    assert store.open(talking).chat == CHAT
    assert store.open(plain).chat == ChatTemplates()
    store.verify(talking)
    # The same templates are the same version, others are not.
    assert store.publish(TALKING, name="t") == talking
    other = A.with_chat(ChatTemplates(CHAT.sources))
    assert store.publish(other, name="t") not in (plain, talking)
    # Nor are declared tokens without a template.
    declared = A.with_chat(ChatTemplates(variables={"eos_token": "<end>"}))
    assert store.open(store.publish(declared, name="t")).chat == declared.chat
    # The pointer distinguishes versions of one digest.
    store.promote(plain)
    assert store.promote(talking) == plain
    assert store.active() == talking
    store.promote(plain)
    store.remove(talking.name, talking.version)
    assert not folder_of(store, talking).exists()


def test_a_folder_that_has_only_a_compiled_file_is_no_version(store):
    ref = store.publish(A, name="t")
    left = folder_of(store, ref).with_name(f"2999{ref.version[4:]}")
    left.mkdir()
    (left / "compiled").touch()
    assert (store.resolve("t"), store.list(), store.damaged()) == (ref, [ref], {})


def test_a_version_removed_during_a_listing_is_not_damaged(store, monkeypatch):
    gone, ref = store.publish(A, name="gone"), store.publish(A, name="t")
    listed = store._version_names

    def list_and_remove(name):
        found = listed(name)
        if name == "gone" and found:
            store.remove(name, gone.version)
        return found

    monkeypatch.setattr(store, "_version_names", list_and_remove)
    monkeypatch.setattr(store, "names", lambda: ["gone", "t"])
    assert store.damaged() == {}
    assert store.list() == [ref]
