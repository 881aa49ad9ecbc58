"""A compiled tokenizer is the one that its source gives, in every respect; whatever is wrong with
the file, the tokenizer is loaded from its source."""

import copy
import errno
import gc
import os
import pickle
import subprocess
import sys
import weakref
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.native_module import native_module
from tests.parity.vocabularies import NAMES, OPEN_FILES, vocabulary_file
from tests.tokenizer_core.every_way import check_every_way
from tests.tokenizer_core.formats.small_specs import (
    BYTES,
    TRAINING_TEXT,
    character_spec,
    trained_spec,
    wild_ranks,
)
from tokenizer_core import Tokenizer, TokenizerSpec, compiled
from tokenizer_core.blobs import atomic_files
from tokenizer_core.engines.native_engine import NativeEngine
from tokenizer_core.errors import ArtifactCorruptError, FormatError
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.manifest_fields import render_spec_fields
from tokenizer_core.formats.model_folder import FILE_NAMES
from tokenizer_core.formats.tokenizer_json.document import (
    render_tokenizer_json,
)
from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import AddedToken, Alphabet, MissingBytes
from tokenizer_core.spec.chat_templates import ChatTemplates

TEXTS = [
    "",
    TRAINING_TEXT,
    "low<|endoftext|>lowest \u0300 e\u0301 \u1e69 <mask> caf\u00e9",
    "  a\n\n b\x00\ufffd🙂",
]
KEY = bytes(range(32))
TRUNCATION = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
STEPS = (NormalizerStep("Lowercase"), NormalizerStep("Replace", " +", is_regex=True, content=" "))
TOKENS = [AddedToken("<mask>", 356, lstrip=True), AddedToken("think", 357, special=False)]
SPECS = {
    "merges": trained_spec(),
    "ranks": TokenizerSpec.from_ranks(wild_ranks(1), {"<|endoftext|>": 900}, pattern="cl100k"),
    "NFC": trained_spec(pattern="qwen2", normalizer="nfc"),
    "steps": trained_spec(normalizer=normalizer_of("steps", STEPS)),
    "flags": trained_spec(special_tokens=TOKENS),
    "characters": character_spec(),
    "own pattern": trained_spec(pattern=r"[a-z]+|\s+|[^a-z\s]"),
    "whole words": trained_spec(ignore_merges=True, prefix_ids=(1, 2), suffix_ids=(3,)),
    "empty token and gaps": TokenizerSpec.from_merges(
        BYTES | {300: b"", 302: b"ab"}, [(b"a", b"b")], ["<|endoftext|>"]
    ),
    "missing bytes": TokenizerSpec.from_merges(
        {i: token for i, token in BYTES.items() if i != 0} | {256: b"<unk>", 257: b"ab"},
        [(b"a", b"b")],
        alphabet=Alphabet(missing=MissingBytes((0,), 256)),
    ),
    "chat": trained_spec(
        chat=ChatTemplates({"default": "{{ messages }}"}, {"eos_token": "<|endoftext|>"}),
        batch_settings={"truncation": TRUNCATION},
    ),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of compiled files, which is used."""
    native_module()
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tmp_path.chmod(0o700)
    return tmp_path / "cache" / "tokenizer-service" / "compiled"


@pytest.fixture
def source(tmp_path):
    """A file with a tokenizer."""
    write_files("tokenizer.json", SPECS["merges"], tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


def compile_spec(spec, folder):
    """The tokenizer of a compiled file that is made of this spec."""
    native_module()
    folder.chmod(0o700)
    compiled.keep(folder / "file", KEY, spec, NativeEngine(spec))
    found, engine = compiled.find(folder / "file", KEY)
    return Tokenizer.from_spec(found, engine=engine)


def is_compiled(tokenizer):
    return "_read_tables" in vars(tokenizer.spec)


def check_equal(found, plain, texts=TEXTS):
    """Both have the same ids, texts, settings and files."""
    check_every_way(found, texts, [plain.encode(text) for text in texts])
    for text in texts:
        arrays = (one.encode_with_offsets(text)[1].tolist() for one in (found, plain))
        assert next(arrays) == next(arrays)
        ids = plain.encode(text, add_special_tokens=True)
        assert found.encode(text, add_special_tokens=True) == ids
        assert found.encode(text, allowed_special="none") == plain.encode(
            text, allowed_special="none"
        )
        assert found.decode_bytes(ids) == plain.decode_bytes(ids)
        assert found.decode(ids, skip_special_tokens=True) == plain.decode(
            ids, skip_special_tokens=True
        )
    assert (found.vocab_size, found.n_vocab) == (plain.vocab_size, plain.n_vocab)
    assert (found.special_tokens, found.control_tokens) == (
        plain.special_tokens,
        plain.control_tokens,
    )
    assert (found.chat_templates, found.template_variables) == (
        plain.chat_templates,
        plain.template_variables,
    )
    for each in fields(TokenizerSpec):
        assert getattr(found.spec, each.name) == getattr(plain.spec, each.name), each.name
    assert found.spec.token_to_id == plain.spec.token_to_id
    assert replace(found.spec).fingerprint == found.spec.fingerprint == plain.spec.fingerprint
    assert render_spec_fields(found.spec) == render_spec_fields(plain.spec)
    for again in (pickle.loads(pickle.dumps(found)), copy.copy(found)):
        assert again.encode(texts[1]) == plain.encode(texts[1])


@pytest.mark.parametrize("name", SPECS)
def test_a_compiled_tokenizer_is_that_of_its_source(name, tmp_path):
    spec = SPECS[name]
    found = compile_spec(spec, tmp_path)
    ids, offsets = found.encode_with_offsets("low <|endoftext|>")
    plain_ids, plain_offsets = Tokenizer.from_spec(spec).encode_with_offsets("low <|endoftext|>")
    assert (ids, offsets.tolist()) == (plain_ids, plain_offsets.tolist())
    if not (spec.alphabet.has_characters or spec.alphabet.missing):
        found.decode(found.encode("low"))
        assert not {"vocab", "merges"} & vars(found.spec).keys(), "nobody has asked for them"
    check_equal(found, Tokenizer.from_spec(spec))


def test_a_compiled_tokenizer_is_freed_with_its_last_reference(tmp_path):
    found = compile_spec(SPECS["chat"], tmp_path)
    spec = weakref.ref(found.spec)  # it holds the mapping
    del found
    assert spec() is None


def test_files_of_a_compiled_tokenizer_are_those_of_its_source(tmp_path):
    found = compile_spec(SPECS["merges"], tmp_path)
    assert render_tokenizer_json(found.spec) == render_tokenizer_json(SPECS["merges"])


def test_the_second_load_compiles_and_the_third_uses_it(cache, source):
    loaded = [Tokenizer.load(source) for _ in range(4)]
    assert list(map(is_compiled, loaded)) == [False, False, True, True]
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o444
    check_equal(loaded[3], loaded[0])


@pytest.mark.parametrize("kind", ["preset", "folder"])
def test_presets_and_folders_are_compiled(kind, cache, source):
    folder = source.parent / "folder"
    folder.mkdir()
    source.rename(folder / "tokenizer.json")
    make = {
        "preset": lambda: Tokenizer.from_preset("gpt2"),
        "folder": lambda: Tokenizer.load(folder),
    }
    plain, _, found = (make[kind]() for _ in range(3))
    assert is_compiled(found)
    check_equal(found, plain)


def test_another_source_is_another_tokenizer(cache, source):
    for _ in range(3):
        before = Tokenizer.load(source)
    other = trained_spec(50)
    write_files("tokenizer.json", other, source)
    after = Tokenizer.load(source)
    assert (is_compiled(before), is_compiled(after)) == (True, False)
    assert after.spec.fingerprint == other.fingerprint
    config = source.with_name("tokenizer_config.json")
    assert {Path(name).suffix for name in FILE_NAMES} <= {*compiled._SOURCE_SUFFIXES}
    keys = {compiled.key_of_path(source.parent), compiled.key_of_path(source)}
    config.write_text('{"added_tokens_decoder": {}}')
    keys |= {
        compiled.key_of_path(source.parent),
        compiled.key_of_path(source.parent, ids="file"),
    }
    assert len(keys) == 4
    with pytest.raises(FormatError, match="a file has its own ids"):
        Tokenizer.load(source, ids="transformers5")


def test_a_source_that_changes_while_it_is_read_is_not_compiled(cache, source):
    keys = iter([compiled.key_of(b"1"), compiled.key_of(b"1"), compiled.key_of(b"2")])
    for _ in range(2):
        compiled.load(lambda: next(keys), lambda: SPECS["merges"])
    assert not [path for path in cache.iterdir() if path.suffix != ".seen"]


def test_other_readers_find_no_file(cache, source, monkeypatch):
    for _ in range(3):
        found = Tokenizer.load(source)
    monkeypatch.setattr(compiled, "_HASH_OF_READERS", b"of a later release")
    assert (is_compiled(found), is_compiled(Tokenizer.load(source))) == (True, False)


def _damage(data):
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(_damage(file.read_bytes())),
        lambda file: file.chmod(0o464),
        lambda file: file.parent.chmod(0o770),
        lambda file: file.parent.parent.chmod(0o777),
        lambda file: file.chmod(0o000) if os.geteuid() else file.unlink(),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["empty", "cut", "damaged", "file of a group", "folder of a group", "folder of all",
         "unreadable", "a folder"],
)  # fmt: skip
def test_a_file_that_cannot_be_trusted_is_not_used(change, cache, source):
    plain, *_ = (Tokenizer.load(source) for _ in range(3))
    (file,) = cache.iterdir()
    file.chmod(0o644)
    change(file)
    found = Tokenizer.load(source)
    assert not is_compiled(found)
    assert found.encode(TRAINING_TEXT) == plain.encode(TRAINING_TEXT)


def _is_full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("trouble", ["full", "read-only", "no home", "off"])
def test_trouble_with_the_cache_is_silent(trouble, cache, source, monkeypatch, recwarn):
    if trouble == "full":
        monkeypatch.setattr(atomic_files.os, "write", _is_full)
    elif trouble == "read-only":
        monkeypatch.setattr(Path, "mkdir", _is_full)
    elif trouble == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        monkeypatch.setenv(compiled.COMPILED_VARIABLE, "off")
    loaded = [Tokenizer.load(source) for _ in range(3)]
    assert not any(map(is_compiled, loaded))
    assert not recwarn.list
    assert not [path for path in cache.glob("*") if path.suffix != ".seen"]


def test_the_least_recently_used_file_is_removed_first(cache, source, monkeypatch):
    sources = []
    for n_merges in (10, 20, 30):
        sources.append(source.with_name(f"{n_merges}.json"))
        write_files("tokenizer.json", trained_spec(n_merges), sources[-1])
    for path in (sources[0], sources[0], sources[1], sources[1]):
        Tokenizer.load(path)
    for number, path in enumerate(cache.iterdir()):
        os.utime(path, (number, number))
    assert is_compiled(Tokenizer.load(sources[0]))  # used later than the other
    size = sum(path.stat().st_size for path in cache.iterdir())
    monkeypatch.setattr(compiled, "MAX_CACHE_BYTES", size * 5 // 4)
    for _ in range(2):
        Tokenizer.load(sources[2])
    there = [is_compiled(Tokenizer.load(path)) for path in sources]
    assert there == [True, False, True]


def test_the_python_engine_neither_reads_nor_writes_files(cache, source):
    for _ in range(3):
        assert not is_compiled(Tokenizer.load(source, engine="python"))
    assert not cache.exists()


@pytest.mark.shared_data
@pytest.mark.parametrize("name", [*NAMES, *OPEN_FILES])
def test_public_vocabularies_are_compiled_exactly(name, shared_data, cache):
    path = vocabulary_file(shared_data, name)
    plain, _, found = (Tokenizer.load(path) for _ in range(3))
    assert is_compiled(found)
    check_equal(found, plain)


def test_processes_of_a_host_share_one_copy(cache, source, tmp_path):
    plain, _ = (Tokenizer.load(source) for _ in range(2))
    key, shared = compiled.key_of_path(source), tmp_path / "run"
    path = cache / key.hex()
    _, first = compiled.find(path, key, shared)
    (told,) = shared.glob("*.*[0-9]")
    path.unlink()
    with pytest.raises(OSError):  # nobody can write to the memory
        Path(f"/proc/{os.getpid()}/fd/{told.read_text()}").write_bytes(b"x")
    code = (
        "import sys; from pathlib import Path; from tokenizer_core import Tokenizer, compiled\n"
        "path, shared, key = Path(sys.argv[1]), Path(sys.argv[2]), bytes.fromhex(sys.argv[3])\n"
        "spec, engine = compiled.find(path, key, shared)\n"
        "print(Tokenizer.from_spec(spec, engine=engine).encode('low lower'), *shared.iterdir())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, path, shared, key.hex()],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.startswith(str(plain.encode("low lower")))
    assert done.stdout.count(key.hex()) == 2, "the second process shares it too"
    assert list(shared.glob("*.*[0-9]")) == [told], "a process that ends withdraws what it told"
    del first
    gc.collect()
    assert not list(shared.glob("*.*[0-9]"))


def test_a_process_that_ended_without_a_word_shares_nothing(cache, source, tmp_path):
    for _ in range(2):
        plain = Tokenizer.load(source)
    key, shared = compiled.key_of_path(source), tmp_path / "run"
    shared.mkdir()
    other = tmp_path / "other"
    other.write_bytes(b"no compiled tokenizer")
    with other.open("rb") as file:  # the number is of another file by now
        (shared / f"{key.hex()}.{os.getpid()}").write_text(str(file.fileno()))
        (shared / f"{key.hex()}.{2**22}").write_text("0")
        (shared / f"{key.hex()}.text").write_text("none")
        spec, engine = compiled.find(cache / key.hex(), key, shared)
    assert engine.encode(TRAINING_TEXT) == plain.encode_ordinary(TRAINING_TEXT)
    assert spec.fingerprint == plain.spec.fingerprint


def test_a_published_version_is_compiled_before_anyone_sees_it(cache, tmp_path):
    store = ArtifactStore(tmp_path / "artifacts")
    spec = SPECS["chat"]
    ref = store.publish(spec, name="chat")
    found = store.load(ref)
    assert is_compiled(found)
    check_equal(found, Tokenizer.from_spec(spec))
    folder = tmp_path / "artifacts" / "tokenizers" / "chat" / ref.version
    assert "compiled" in {path.name for path in folder.iterdir()} - {
        *store.read_manifest(ref).files
    }
    assert not cache.exists(), "no other file is needed"
    (folder / "vocab.pkl").write_bytes(b"damaged")
    with pytest.raises(ArtifactCorruptError):
        store.load(ref)
    store.remove(ref.name, ref.version)
    assert not folder.exists()


def test_a_version_is_published_where_it_cannot_be_compiled(cache, tmp_path, monkeypatch):
    store = ArtifactStore(tmp_path / "artifacts")
    monkeypatch.setattr(compiled, "write_synced", _is_full)
    ref = store.publish(SPECS["merges"], name="full")
    monkeypatch.undo()
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "off")
    of_off = store.publish(SPECS["NFC"], name="off")
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for each in (ref, of_off):
        assert list(map(is_compiled, (store.load(each) for _ in range(3)))) == [False, False, True]
