"""The targets without a fuzzer: their seeds, mutated seeds, and earlier findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import body_targets, file_targets, request_targets
from tests.fuzz.seeds import FOUND, found, seeds
from tests.fuzz.small_tokenizer import small_spec
from tests.fuzz.targets import NAMES, try_target
from tests.profiles import examples

places = st.floats(0, 1, exclude_max=True)
words = [b'"', b"{", b"[" * 20, b"\\ud800", b"1e999", b"-"]
scraps = st.binary(max_size=3) | st.sampled_from(words)
edits = st.lists(st.tuples(places, st.integers(0, 4), scraps), min_size=1, max_size=4)


def edit(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """With some bytes replaced by others; one in five is also truncated at such an offset."""
    for where, n_replaced, scrap in changes:
        at = int(where * (len(data) + 1))
        data = data[:at] + scrap + (data[at + n_replaced :] if n_replaced < 4 else b"")
    return data


def test_every_target_has_seeds_and_nothing_else_has() -> None:
    assert set(seeds()) == set(NAMES)
    assert {folder.name for folder in FOUND.iterdir()} <= set(NAMES)


def try_seeds(name: str) -> list[bytes]:
    """The inputs that the target refuses."""
    return [seed for seed in seeds()[name] if not try_target(name, seed)]


@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_its_seeds(name: str) -> None:
    assert try_seeds(name) == []


@pytest.mark.promise(19)
@pytest.mark.parametrize("name", NAMES)
@examples(1 / 5)
@given(data=st.data())
def test_what_is_near_is_taken_or_refused_in_order(name: str, data: st.DataObject) -> None:
    try_target(name, edit(data.draw(st.sampled_from(seeds()[name])), data.draw(edits)))


@pytest.mark.promise(19)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_found_once_is_mended(name: str) -> None:
    for path in found(name):
        try_target(name, path.read_bytes())


def broken(*arguments: Any, **options: Any) -> Any:
    raise KeyError


READERS = {
    "plain_pickle": (file_targets, "parse_plain_pickle"),
    "gpt2_files": (file_targets, "parse_merges_txt"),
    "tiktoken": (file_targets.tiktoken_file, "_parse_line_by_line"),
    "tokenizer_json": (file_targets, "parse_tokenizer_json"),
    "tekken": (file_targets, "parse_tekken"),
    "manifest": (file_targets, "parse_manifest_json"),
    "active_pointer": (file_targets.ActivePointer, "from_json"),
    "artifact_folder": (file_targets.Manifest, "from_json"),
    "corpus_file": (file_targets, "split_plain_text"),
    "corpus_address": (file_targets, "parse_address"),
    "request_json": (body_targets, "parse_strict_json"),
    "ids_body": (body_targets, "parse_ids_body"),
    "encode_body": (body_targets, "read_model"),
    "decode_body": (body_targets.decode, "parse"),
    "text_body": (body_targets, "validate"),
    "dialect_body": (body_targets.dialects, "validate"),
    "order_body": (body_targets, "validate"),
    "text_stream": (body_targets.EncodeCodec, "feed"),
    "id_stream": (body_targets.DecodeCodec, "finish"),
    "request_headers": (request_targets, "not_modified"),
    "trace_headers": (request_targets.Tracing, "__call__"),
    "http_connection": (request_targets.GuardedHttpProtocol, "on_header"),
    "corpus_url": (request_targets.CorpusUrl, "parse"),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_error_nobody_promised_is_a_finding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*READERS[name], broken)
    with pytest.raises((KeyError, AssertionError)):
        try_seeds(name)


LIES: dict[str, tuple[object, str, Any]] = {
    "plain_pickle": (file_targets, "render_pickle", lambda value: b"\x80\x04}."),
    "gpt2_files": (file_targets, "render_gpt2_files", lambda spec: (b"{}", b"")),
    "tiktoken": (file_targets.tiktoken_file, "_parse_line_by_line", lambda data: {b"a": 0}),
    "tekken": (file_targets, "parse_tekken", lambda data: small_spec()),
    "corpus_file": (file_targets, "decode_blocks", lambda blocks, name: ["<|e|>"] * len([*blocks])),
    "corpus_address": (file_targets, "check_allowed", lambda path, roots: None),
    "request_json": (body_targets.json, "loads", lambda text: None),
    "ids_body": (body_targets, "parse_ids_body", lambda body, form: np.zeros(3, np.uint32)),
    "artifact_folder": (file_targets.ArtifactStore, "list", lambda store: [None]),
    "request_headers": (request_targets, "ids_form_of", body_targets.FORMS.__getitem__),
}


@pytest.mark.parametrize("name", LIES)
def test_a_wrong_value_is_a_finding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*LIES[name])
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        try_seeds(name)
