"""The files of a version, which other programs load, and conditional responses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.load
import tokenizers
from starlette.testclient import TestClient

from tests.tokenizer_service.conftest import ADMIN_KEY, CORPUS, SPECIALS
from tests.tokenizer_service.routes.exchanges import post, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_service.serving import artifact_files
from tokenizer_service.serving.artifact_files import MEDIA_TYPES

TEXT = CORPUS + " 🙂 e\u0301 unseen words"


def address(ref: ArtifactRef, file: str) -> str:
    return f"/tokenizers/{ref.name}/{ref.version}/{file}"


def download(client: TestClient, ref: ArtifactRef, folder: Path, *files: str) -> list[Path]:
    paths = []
    for file in files:
        answer = client.get(address(ref, file))
        assert answer.status_code == 200, answer.text
        (folder / file).write_bytes(answer.content)
        paths.append(folder / file)
    return paths


def test_other_programs_load_the_files_of_a_version(
    client: TestClient, starter: ArtifactRef, small_spec: TokenizerSpec, tmp_path: Path
) -> None:
    def encoded(text: str, **options: Any) -> list[int]:
        ids: list[int] = post(client, "/encode", text=text, **options)["tokens"]
        return ids

    paths = dict(zip(MEDIA_TYPES, download(client, starter, tmp_path, *MEDIA_TYPES), strict=True))
    whole = tokenizers.Tokenizer.from_file(str(paths["tokenizer.json"]))
    text = TEXT + "<|endoftext|>" + TEXT
    assert whole.encode(text, add_special_tokens=False).ids == encoded(text)
    ranked = tiktoken.Encoding(
        "downloaded",
        pat_str=PATTERNS["gpt2"].expression,
        mergeable_ranks=tiktoken.load.load_tiktoken_bpe(str(paths["tokenizer.tiktoken"])),
        special_tokens=small_spec.special_tokens,
    )
    assert ranked.encode(TEXT, allowed_special="all") == encoded(TEXT)
    vocab, merges = str(paths["vocab.json"]), str(paths["merges.txt"])
    plain = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocab, merges))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = plain.encode(TEXT, add_special_tokens=False).ids
    assert ids == encoded(TEXT, allowed_special="none")
    assert Tokenizer.from_files(paths["vocab.pkl"], paths["merges.pkl"]).spec == small_spec


def test_a_file_has_headers_and_a_tag_of_its_release(
    client: TestClient, starter: ArtifactRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    etags = set()
    for file, media_type in MEDIA_TYPES.items():
        path = address(starter, file)
        answer = client.get(path)
        headers = answer.headers
        assert headers["Content-Type"].partition(";")[0] == media_type.partition(";")[0]
        assert headers["Content-Disposition"] == f'attachment; filename="{file}"'
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "private, no-cache"
        assert headers["Tokenizer-Digest"] == starter.digest
        head = client.head(path)
        assert (head.status_code, head.headers["ETag"]) == (200, headers["ETag"])
        assert int(head.headers["Content-Length"]) == len(answer.content)
        etags.add(headers["ETag"])
    assert len(etags) == len(MEDIA_TYPES)
    path = address(starter, "tokenizer.json")
    etag = client.get(path).headers["ETag"]
    known = [{"If-None-Match": known} for known in (etag, f"W/{etag}", f'"x", {etag}', '"x"')]
    assert [client.get(path, headers=one).status_code for one in known] == [304, 304, 304, 200]
    unchanged = client.get(path, headers=known[0])
    assert unchanged.content == b""
    assert unchanged.headers["ETag"] == etag
    monkeypatch.setattr(artifact_files, "__version__", "99")  # which may render it anew
    assert client.get(path, headers=known[0]).status_code == 200


@pytest.mark.row(28)
def test_a_path_that_is_no_file_of_a_version_is_refused(client: TestClient) -> None:
    missing = "starter/20261121T041500Z-1a2b3c4d"
    for path, status, code in (
        ("starter/%2e%2e/tokenizer.json", 422, "invalid_tokenizer_name"),
        ("starter/%2e%2e%2f%2e%2e%2fx/manifest.json", 422, "invalid_tokenizer_name"),
        ("starter/newest/tokenizer.json", 422, "invalid_tokenizer_name"),
        (f"{missing}/tokenizer.json", 404, "tokenizer_not_found"),
        (f"{missing}/%2e%2e", 404, "file_not_found"),
    ):
        problem(client.get(f"/tokenizers/{path}"), status, code)


def test_a_version_that_is_not_served_has_files_too(
    own_client: TestClient,
    store: ArtifactStore,
    starter: ArtifactRef,
    other_spec: TokenizerSpec,
    tmp_path: Path,
) -> None:
    newer = store.publish(other_spec, name="starter")
    [path] = download(own_client, newer, tmp_path, "tokenizer.json")
    assert tokenizers.Tokenizer.from_file(str(path)).encode("a").ids == [1097]
    answer = own_client.get(address(newer, "tokenizer.json"))
    assert answer.headers["Tokenizer-Version"] == str(newer)
    assert own_client.get(address(starter, "tokenizer.json")).content != answer.content
    assert [str(live.ref) for live in own_client.app.services.live.loaded()] == [  # type: ignore[attr-defined]
        str(starter)
    ]


def test_a_format_that_would_give_other_ids_is_refused_by_name(
    client: TestClient, shared_store: ArtifactStore
) -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [], SPECIALS, normalizer="nfc")
    ref = shared_store.publish(spec, name="normalized")
    for file in ("tokenizer.tiktoken", "vocab.json", "merges.txt"):
        answer = client.get(address(ref, file))
        assert (answer.status_code, answer.json()["code"]) == (422, "format_cannot_hold_it")
        assert file in answer.json()["detail"]
        assert "tokenizer.json" in answer.json()["detail"]  # the remedy
        assert answer.headers["Tokenizer-Version"] == str(ref)
    assert client.get(address(ref, "tokenizer.json")).status_code == 200
    assert client.app.services.budget.used == 0  # type: ignore[attr-defined]


@pytest.mark.row(30)
def test_a_damaged_file_is_refused(
    own_client: TestClient, store: ArtifactStore, starter: ArtifactRef
) -> None:
    path = store.root / "tokenizers" / starter.name / starter.version / "vocab.pkl"
    path.write_bytes(path.read_bytes()[:-1])
    assert own_client.get(address(starter, "vocab.pkl")).status_code == 409
    assert own_client.get(address(starter, "merges.pkl")).status_code == 200


def test_lists_and_the_active_one_are_not_sent_again(
    own_client: TestClient, store: ArtifactStore, starter: ArtifactRef, other_spec: TokenizerSpec
) -> None:
    listed, active = "/tokenizers/starter", "/tokenizers/active"
    known = {}
    for path in (listed, active):
        known[path] = {"If-None-Match": own_client.get(path).headers["ETag"]}
        unchanged = own_client.get(path, headers=known[path])
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == known[path]["If-None-Match"]
    assert unchanged.headers["Tokenizer-Version"] == str(starter)
    newer = store.publish(other_spec, name="starter")
    changed = own_client.get(listed, headers=known[listed])
    versions = [entry["version"] for entry in changed.json()["tokenizers"]]
    assert versions == [newer.version, starter.version]
    asked, key = {"tokenizer": str(newer)}, {"X-API-Key": ADMIN_KEY}
    assert own_client.put(active, json=asked, headers=key).status_code == 200
    # The list shows the active tokenizer as well.
    before = {"If-None-Match": changed.headers["ETag"]}
    assert own_client.get(listed, headers=before).status_code == 200
    assert own_client.get(active, headers=known[active]).json()["digest"] == newer.digest


def test_versions_that_differ_in_chat_templates_alone_have_tags_of_their_own(
    own_client: TestClient, store: ArtifactStore, small_spec: TokenizerSpec
) -> None:
    specs = [
        dataclasses.replace(small_spec, chat=ChatTemplates({"default": template}))
        for template in ("one", "two")
    ]
    refs = [store.publish(spec, name="chat") for spec in specs]
    assert refs[0].digest == refs[1].digest

    def promote(ref: ArtifactRef, expected: str) -> int:
        headers = {"X-API-Key": ADMIN_KEY, "If-Match": expected}
        asked = {"tokenizer": str(ref)}
        return own_client.put("/tokenizers/active", json=asked, headers=headers).status_code

    assert promote(refs[0], "*") == 200
    old = own_client.get("/tokenizers/active").headers["ETag"]
    assert promote(refs[1], old) == 200
    shown = own_client.get("/tokenizers/active", headers={"If-None-Match": old})
    assert shown.json()["version"] == refs[1].version
    assert shown.headers["ETag"] != old
    assert promote(refs[0], old) == 412
    assert promote(refs[0], f'"{refs[1].digest}"') == 200
    shown = own_client.get(address(refs[1], CHAT_FILE)).json()
    assert shown["templates"] == {"default": "two"}
    live = own_client.app.services.live.active  # type: ignore[attr-defined]
    assert live.tokenizer.spec.chat == ChatTemplates({"default": "one"})
    for file in MEDIA_TYPES:
        tags = {own_client.get(address(ref, file)).headers["ETag"] for ref in refs}
        assert len(tags) == 2, file


def test_a_version_removed_while_they_are_listed_is_left_out(
    own_client: TestClient,
    store: ArtifactStore,
    starter: ArtifactRef,
    other_spec: TokenizerSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = ArtifactStore.list

    def list_and_remove(self: ArtifactStore) -> list[ArtifactRef]:
        refs = listed(self)
        self.remove(gone.name, gone.version)
        return refs

    gone = store.publish(other_spec, name="gone")
    monkeypatch.setattr(ArtifactStore, "list", list_and_remove)
    answer = own_client.get("/tokenizers")
    assert answer.status_code == 200, answer.text
    assert [found["name"] for found in answer.json()["tokenizers"]] == [starter.name]


def test_a_version_is_removed_only_under_its_digest(
    client: TestClient, shared_store: ArtifactStore, other_spec: TokenizerSpec
) -> None:
    store = shared_store
    other = store.publish(other_spec, name="other")
    path, key = f"/tokenizers/other/{other.version}", {"X-API-Key": ADMIN_KEY}
    for tag in ('"wrong"', ""):
        answer = client.delete(path, headers={**key, "If-Match": tag})
        assert (answer.status_code, answer.json()["code"]) == (412, "digest_mismatch")
    assert store.versions("other") == [other]
    right = {**key, "If-Match": f'"{other.digest}"'}
    assert client.delete(path, headers=right).status_code == 204
    assert store.versions("other") == []
