"""A compiled tokenizer is the one that its source gives, in every respect; whatever is wrong with
the file, the tokenizer is loaded from its source."""

import copy
import errno
import gc
import os
import pickle
import pwd
import subprocess
import sys
import weakref
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

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
from tokenizer_core.errors import ArtifactCorruptError, EngineUnavailableError, FormatError
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.manifest_fields import render_spec_fields
from tokenizer_core.formats.model_folder import FILE_NAMES
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
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a memfd is of Linux")
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
        prefix_ids=(1,),
        suffix_ids=(2,),
        post_processor={"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]},
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


def test_the_second_load_compiles_and_the_third_uses_it(cache, source):
    usual = os.umask(0o002)
    loaded = [Tokenizer.load(source) for _ in range(4)]
    os.umask(usual)
    assert list(map(is_compiled, loaded)) == [False, False, True, True]
    (file,) = cache.iterdir()
    modes = [
        path.stat().st_mode & 0o777 for path in (file, cache, cache.parent, cache.parent.parent)
    ]
    assert modes == [0o444, 0o700, 0o700, 0o700]
    check_equal(loaded[3], loaded[0])


@pytest.mark.parametrize("kind", ["preset", "folder", "ranks"])
def test_presets_and_folders_are_compiled(kind, cache, source):
    folder = source.parent / "folder"
    folder.mkdir()
    source.rename(folder / "tokenizer.json")
    ranks = folder / "ranks.tiktoken"
    write_files("tiktoken", SPECS["ranks"], ranks)

    def of_ranks(token="<|endoftext|>"):
        return Tokenizer.from_tiktoken(ranks, pattern="cl100k", special_tokens={token: 900})

    make = {
        "ranks": of_ranks,
        "preset": lambda: Tokenizer.from_preset("gpt2"),
        "folder": lambda: Tokenizer.load(folder),
    }
    plain, _, found = (make[kind]() for _ in range(3))
    assert is_compiled(found)
    check_equal(found, plain)
    assert of_ranks("<other>").special_tokens == {"<other>": 900}


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
    monkeypatch.setattr(compiled.os, "walk", lambda folder: [])  # a program without its sources
    monkeypatch.setattr(compiled, "_HASH_OF_READERS", compiled._hash_readers())
    assert not compiled.is_used()


def _damage(data):
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(_damage(file.read_bytes())),
        lambda file: file.chmod(0o446),
        lambda file: file.parent.parent.chmod(0o707),
        lambda file: file.chmod(0o000) if os.geteuid() else file.unlink(),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["empty", "cut", "damaged", "file of all", "folder of all", "unreadable", "a folder"],
)  # fmt: skip
@pytest.mark.row(40)
def test_a_file_that_cannot_be_trusted_is_not_used(change, cache, source):
    plain, *_ = (Tokenizer.load(source) for _ in range(3))
    (file,) = cache.iterdir()
    file.chmod(0o644)
    change(file)
    found = Tokenizer.load(source)
    assert not is_compiled(found)
    assert found.encode(TRAINING_TEXT) == plain.encode(TRAINING_TEXT)


def pretend(monkeypatch, path, **shown):
    """Let the file or folder at `path` seem to have these fields of a status."""
    target, names = path.stat(), ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid")

    def patched(original):
        def read(*arguments, **options):
            status = original(*arguments, **options)
            if not os.path.samestat(status, target):
                return status
            values = [shown.get(name, getattr(status, name)) for name in names]
            return os.stat_result([*values, *status[6:]])

        return read

    for name in ("stat", "fstat"):
        monkeypatch.setattr(os, name, patched(getattr(os, name)))


@pytest.mark.row(40)
@pytest.mark.parametrize("which", ["file", "folder", "folder above"])
@pytest.mark.parametrize("who", ["own group", "owner", "group", "group with a member", "ACL"])
def test_a_file_that_another_user_can_replace_is_not_used(which, who, cache, source, monkeypatch):
    for _ in range(3):
        Tokenizer.load(source)
    (file,) = cache.iterdir()
    path = {"file": file, "folder": cache, "folder above": cache.parent}[which]
    user = os.geteuid()
    bob = pwd.struct_passwd(("bob", "x", user + 1, user, "", "", ""))
    monkeypatch.setattr(pwd, "getpwall", lambda: [bob] if "member" in who else [])
    if who == "owner":
        pretend(monkeypatch, path, st_uid=user + 1)
    else:
        path.chmod(path.stat().st_mode | 0o020)
        pretend(monkeypatch, path, st_gid=user + (who == "group"))
    if who == "ACL":
        monkeypatch.setattr(os, "listxattr", lambda path: ["system.posix_acl_access"])
    is_used = who == "own group" and hasattr(os, "listxattr")
    assert is_compiled(Tokenizer.load(source)) == is_used


def _is_full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "trouble",
    ["full", "small", "read-only", "of all", "no home", "empty home", "relative", "off", "False"],
)
def test_trouble_with_the_cache_is_silent(trouble, cache, source, monkeypatch, recwarn):
    if trouble == "full":
        monkeypatch.setattr(atomic_files.os, "write", _is_full)
    elif trouble == "read-only":
        monkeypatch.setattr(Path, "mkdir", _is_full)
    elif trouble == "small":
        free = SimpleNamespace(f_bavail=1, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda path: free)
        monkeypatch.setattr(compiled, "write_synced", None)  # nothing is written to be removed
    elif trouble == "of all":
        source.parent.chmod(0o777)
    elif trouble in ("no home", "empty home", "relative"):
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "")
        if trouble == "no home":
            monkeypatch.setattr(Path, "home", _has_no_home)
        elif trouble == "relative":
            monkeypatch.chdir(source.parent)
            monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    else:
        monkeypatch.setenv(compiled.COMPILED_VARIABLE, trouble)
    loaded = [Tokenizer.load(source) for _ in range(3)]
    assert not any(map(is_compiled, loaded))
    assert not recwarn.list
    assert not [path for path in cache.glob("*") if path.suffix != ".seen"]
    assert cache.exists() == (trouble in ("full", "small")), "nothing is written in vain"


def _has_no_home():
    raise RuntimeError("no home")


def test_another_word_than_on_or_off_is_refused(source, monkeypatch):
    monkeypatch.setenv(compiled.COMPILED_VARIABLE, "none")
    with pytest.raises(EngineUnavailableError, match="TOKENIZER_COMPILED is 'none', and may be"):
        Tokenizer.load(source)


def test_the_least_recently_used_file_is_removed_first(cache, source, monkeypatch):
    sources = []
    for n_merges in (28, 29, 30):  # their files have about the same size
        sources.append(source.with_name(f"{n_merges}.json"))
        write_files("tokenizer.json", trained_spec(n_merges), sources[-1])
    for path in (sources[0], sources[0], sources[1], sources[1]):
        Tokenizer.load(path)
    files = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for number, path in enumerate(files):
        os.utime(path, (number, number))
    assert is_compiled(Tokenizer.load(sources[0]))  # used later than the other
    size = files[0].stat().st_size
    with (cache / "large").open("wb") as file:  # it has no content, and takes no space
        file.truncate((512 << 20) - 2 * size - size // 2)
    free = SimpleNamespace(f_bavail=1 << 30, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: free)
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


LOAD = """
import sys; from pathlib import Path; from tokenizer_core import Tokenizer, compiled
shared, key = Path(sys.argv[1]), bytes.fromhex(sys.argv[2])
spec, engine = compiled.load(lambda: key, None, shared=shared)
print(Tokenizer.from_spec(spec, engine=engine).encode('low lower'), *shared.iterdir())
"""


@linux_only
@pytest.mark.parametrize("is_of_file", [True, False])
def test_processes_of_a_host_share_one_copy(is_of_file, cache, source, tmp_path, monkeypatch):
    plain, _ = (Tokenizer.load(source) for _ in range(2))
    key, shared = compiled.key_of_path(source), tmp_path / "run"
    if not is_of_file:  # it is nowhere to be kept
        (cache / key.hex()).unlink()
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", "")
    spec, first = compiled.load(lambda: key, lambda: plain.spec, shared=shared)
    assert is_compiled(Tokenizer.from_spec(spec, engine=first))
    (told,) = shared.glob("*.*[0-9]")
    (cache / key.hex()).unlink(missing_ok=True)
    with pytest.raises(OSError):  # nobody can write to the memory
        Path(f"/proc/{os.getpid()}/fd/{told.read_text()}").write_bytes(b"x")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, shared, key.hex()],
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


@linux_only
def test_only_sealed_memory_of_this_user_and_key_is_shared(cache, source, tmp_path, monkeypatch):
    for _ in range(2):
        plain = Tokenizer.load(source)
    key, shared = compiled.key_of_path(source), tmp_path / "run"
    other = compiled.load(lambda: bytes(32), lambda: SPECS["chat"], shared=shared)
    (told,) = shared.glob("*.*[0-9]")
    host, _, pid = told.suffix[1:].rpartition("-")
    compiled.keep(tmp_path / "forged", key, SPECS["chat"], NativeEngine(SPECS["chat"]))
    forged = os.open(tmp_path / "forged", os.O_RDONLY)
    # A process ended without a word. By now the numbers are of another tokenizer, of a file, of
    # nothing, and of no process.
    numbers = {pid: told.read_text(), f"0{pid}": f"{forged}", f"{2**22}": "0", "text": "none"}
    stale = [shared / f"{key.hex()}.{host}-{number}" for number in numbers]
    for path, number in zip(stale, numbers.values(), strict=True):
        path.write_text(number)
    elsewhere = shared / f"{key.hex()}.other-{pid}"
    elsewhere.write_text("0")
    spec, engine = compiled.load(lambda: key, None, shared=shared)
    assert engine.encode(TRAINING_TEXT) == plain.encode_ordinary(TRAINING_TEXT)
    assert spec.fingerprint == plain.spec.fingerprint
    assert {*shared.glob(f"{key.hex()}.*")} == {stale[0], elsewhere}
    own = Path(f"/proc/self/fd/{stale[0].read_text()}")
    pretend(monkeypatch, own, st_uid=os.geteuid() + 1)
    again = compiled.load(lambda: key, None, shared=shared)
    assert Path(f"/proc/self/fd/{stale[0].read_text()}").stat().st_ino != own.stat().st_ino
    os.close(forged)
    del other, again


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
    (folder / "vocab.pkl").write_bytes(b"damaged")
    with pytest.raises(ArtifactCorruptError):
        store.load(ref)
    assert not cache.exists(), "no other file is needed"
    store.remove(ref.name, ref.version)
    assert not folder.exists()


@pytest.mark.row(40)
@pytest.mark.parametrize("trouble", ["damaged", "removed", "published on a full disk", "off"])
def test_a_service_writes_the_file_of_a_version_without_a_usable_one(
    trouble, cache, tmp_path, monkeypatch
):
    store = ArtifactStore(tmp_path / "artifacts")
    with monkeypatch.context() as patch:
        if "full" in trouble:
            patch.setattr(compiled, "write_synced", _is_full)
        if trouble == "off":
            patch.setenv(compiled.COMPILED_VARIABLE, "off")
        ref = store.publish(SPECS["merges"], name="merges")
    file = tmp_path / "artifacts" / "tokenizers" / ref.name / ref.version / "compiled"
    assert file.exists() == (trouble in ("damaged", "removed"))
    if trouble == "damaged":
        file.chmod(0o644)
        file.write_bytes(_damage(file.read_bytes()))
    else:
        file.unlink(missing_ok=True)
    left = file.with_name(".compiled.0123456789abcdef")
    left.write_bytes(b"half of it")
    ids = Tokenizer.from_spec(SPECS["merges"]).encode(TRAINING_TEXT)
    assert store.load(ref, shared=tmp_path / "run").encode(TRAINING_TEXT) == ids
    found = store.load(ref)
    assert is_compiled(found)
    assert found.encode(TRAINING_TEXT) == ids
    assert not left.exists(), "a process that was killed left it"
    assert not cache.exists(), "no other file is needed"


@pytest.mark.parametrize("is_of_all", [True, False])
def test_other_versions_are_compiled_in_the_cache(is_of_all, cache, tmp_path):
    store, folder = ArtifactStore(tmp_path / "artifacts"), tmp_path / "artifacts"
    folder.mkdir()
    folder.chmod(0o777 if is_of_all else 0o755)
    ref = store.publish(SPECS["merges"], name="merges")
    file = folder / "tokenizers" / ref.name / ref.version / "compiled"
    assert file.exists() != is_of_all
    file.unlink(missing_ok=True)
    if is_of_all:
        store.load(ref, shared=tmp_path / "run")
        next(cache.iterdir()).unlink()  # the mark of that load
    loaded = [store.load(ref) for _ in range(3)]
    assert list(map(is_compiled, loaded)) == [False, False, True]
    assert not file.exists()
