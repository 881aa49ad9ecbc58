"""Presets: the same definitions as tiktoken's, the file found where it should be, or refused."""

import base64
import hashlib
import pickle
from pathlib import Path

import pytest
from tiktoken_ext import openai_public

from tests.tokenizer_core.formats.small_specs import trained_spec
from tokenizer_core import Tokenizer, presets
from tokenizer_core.errors import FormatError, PresetError, TokenizerCoreError
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.presets import (
    STARTER_FINGERPRINT,
    Preset,
    cached_paths,
    find_preset,
    load_path_spec,
    load_preset_spec,
    recognise_preset,
)
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import resolve_pattern

TINY = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
TINY_PRESET = Preset(
    "tiny", "tiny.tiktoken", hashlib.sha256(TINY).hexdigest(), "gpt2", {"<|end|>": 256}, ()
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A preset of 256 bytes, and empty cache folders."""
    monkeypatch.setattr(presets, "PRESETS", {"tiny": TINY_PRESET})
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TINY_PRESET


@pytest.mark.parametrize("name", openai_public.ENCODING_CONSTRUCTORS)
def test_a_preset_is_defined_as_in_tiktoken(name, monkeypatch):
    preset = find_preset(name)
    asked = []

    def note(url, expected_hash):
        asked.append((url, expected_hash))
        return {}

    # tiktoken builds gpt2 from another pair of files; the tests of parity compare its ids.
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda **_: {})
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", note)
    theirs = openai_public.ENCODING_CONSTRUCTORS[name]()
    assert asked == ([] if name == "gpt2" else [(preset.url, preset.sha256)])
    assert resolve_pattern(theirs["pat_str"]).name == preset.pattern
    assert dict(preset.special_tokens) == theirs["special_tokens"]


def test_gpt2_is_in_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours = Tokenizer.from_preset("gpt2")
    assert ours.encode("Hello, world!<|endoftext|>") == [15496, 11, 995, 0, 50256]
    assert Tokenizer.from_preset("r50k_base").spec == ours.spec
    assert ours.spec.fingerprint == find_preset("gpt2").fingerprints[0]
    with pytest.raises(PresetError, match="not on this machine"):
        Tokenizer.from_preset("cl100k_base")


def test_caches_of_tiktoken_come_before_our_own(tiny, tmp_path, monkeypatch):
    own = tmp_path / "cache" / "tokenizer-service" / "vocabularies" / "tiny.tiktoken"
    key = hashlib.sha1(tiny.url.encode()).hexdigest()
    assert list(cached_paths(tiny)) == [own]
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", "/gym")
    assert list(cached_paths(tiny)) == [Path("/gym") / key, own]
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/tik")
    assert list(cached_paths(tiny)) == [Path("/tik") / key, own]
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # tiktoken: no cache
    assert list(cached_paths(tiny)) == [own]


def test_a_damaged_file_in_one_cache_is_passed_over_for_the_next(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    damaged, own = cached_paths(tiny)
    damaged.write_bytes(TINY + b"\n")
    with pytest.raises(PresetError, match="damaged") as raised:
        load_preset_spec("tiny")
    assert str(damaged) in str(raised.value)
    # A path comes before the caches; a folder with the file of a preset is that preset.
    given = tmp_path / "tiny.tiktoken"
    given.write_bytes(TINY)
    from_path = Tokenizer.from_preset("tiny", path=given)
    assert Tokenizer.load(tmp_path) == Tokenizer.load(given, ids="file") == from_path
    assert recognise_preset(TINY + b"\n") is None
    own.parent.mkdir(parents=True)
    own.write_bytes(TINY)
    assert load_preset_spec("tiny").special_tokens == {"<|end|>": 256}
    assert damaged.read_bytes() == TINY + b"\n"  # another program's file stays


def test_a_wrong_name_or_file_is_refused(tiny, tmp_path):
    with pytest.raises(PresetError, match=r"'gpt5'.*tiny"):
        Tokenizer.from_preset("gpt5")
    with pytest.raises(PresetError, match="'gpt-4o'; that of the model is o200k_base"):
        find_preset("gpt-4o")
    with pytest.raises(PresetError, match="tokenizer pull tiny") as raised:
        Tokenizer.from_preset("tiny")
    for name in (5, ["tiny"]):
        with pytest.raises(PresetError, match="there are tiny"):
            Tokenizer.from_preset(name)
    assert tiny.url in str(raised.value)
    assert str(next(cached_paths(tiny))) in str(raised.value)
    (tmp_path / "other").write_bytes(TINY.replace(b" 255\n", b" 300\n"))
    with pytest.raises(FormatError, match=r"not tiny\.tiktoken as published.*from_tiktoken"):
        Tokenizer.from_preset("tiny", path=tmp_path / "other")


def test_a_file_of_two_is_refused(tmp_path):
    for name, data in [("vocab.pkl", pickle.dumps({0: b"a"})), ("vocab.json", b'{"a": 0}')]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FormatError, match="belongs to a second one; give both"):
            Tokenizer.load(tmp_path / name)
    with pytest.raises(FormatError, match="is for a model folder"):
        load_path_spec(*tmp_path.iterdir(), ids="transformers4")


@pytest.mark.parametrize(
    ("name", "way_on"),
    [
        ("gpt2", r"Tokenizer\.from_preset\('gpt2'\)"),
        ("Qwen/Qwen2.5-7B", r"\(tokenizer pull Qwen/Qwen2.5-7B; Tokenizer.from_pretrained\)"),
        ("./folder", r"folder: './folder'"),
        ("Qwen/Qwen3-8B", r"\(tokenizer pull Qwen/Qwen3-8B; Tokenizer.from_pretrained\)"),
        ("s3://bucket/tokenizer.json", "copy the file first"),
        ("mine", r"by its store: store\.load\(store\.resolve\('mine'\)\)"),
    ],
)
def test_a_name_that_is_no_path_names_the_method_that_takes_it(name, way_on):
    with pytest.raises(FileNotFoundError, match=way_on):
        Tokenizer.load(name)


def test_the_starter_is_loaded_by_its_name_unless_a_file_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    starter = Tokenizer.load("starter")
    assert starter.spec.fingerprint == STARTER_FINGERPRINT
    assert starter.chat_templates
    for load in (Tokenizer.from_preset, Tokenizer.from_pretrained):
        with pytest.raises(TokenizerCoreError, match=r"is Tokenizer\.load\('starter'\)"):
            load("starter")
    with pytest.raises(TokenizerCoreError, match=r"Tokenizer\.load\('\./starter'\) reads a folder"):
        Tokenizer.from_pretrained("./starter")
    own = Tokenizer.from_spec(trained_spec())
    own.save("starter")
    assert Tokenizer.load("starter") == own


def test_a_published_folder_is_loaded_with_its_templates(tmp_path):
    spec = trained_spec().with_chat(ChatTemplates({"default": "{{ messages }}"}))
    store = ArtifactStore(tmp_path)
    ref = store.publish(spec, name="t")
    folder = tmp_path / "tokenizers" / ref.name / ref.version
    assert Tokenizer.load(folder).spec == store.open(ref) == spec
    (folder / "merges.pkl").write_bytes(render_pickle([]))
    with pytest.raises(FormatError):
        Tokenizer.load(folder)
