"""The files of a version, which other programs load, and conditional responses."""

import pytest
import tiktoken.load
import tokenizers

from tests.tokenizer_service.conftest import ADMIN_KEY, CORPUS, SPECIALS
from tests.tokenizer_service.routes.exchanges import problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_service.serving import artifact_files
from tokenizer_service.serving.artifact_files import MEDIA_TYPES

TEXT = CORPUS + " 🙂 e\u0301 unseen words"
ACTIVE = "/tokenizers/active"


def address(ref, file):
    return f"/tokenizers/{ref.name}/{ref.version}/{file}"


def download(client, ref, folder, file):
    answer = client.get(address(ref, file))
    assert answer.status_code == 200, answer.text
    (folder / file).write_bytes(answer.content)
    return str(folder / file)


def promote(client, ref, expected="*"):
    headers = {"X-API-Key": ADMIN_KEY, "If-Match": expected}
    return client.put(ACTIVE, json={"tokenizer": str(ref)}, headers=headers).status_code


def get_unless(client, path, tag):
    return client.get(path, headers={"If-None-Match": tag})


def test_other_programs_load_the_files_of_a_version(client, starter, small_tokenizer, tmp_path):
    """The tests of `tokenizer_core.formats` compare each format in full."""
    spec = small_tokenizer.spec
    paths = {file: download(client, starter, tmp_path, file) for file in MEDIA_TYPES}
    whole = tokenizers.Tokenizer.from_file(paths["tokenizer.json"])
    text = TEXT + "<|endoftext|>" + TEXT
    assert whole.encode(text, add_special_tokens=False).ids == small_tokenizer.encode(text)
    ranks = tiktoken.load.load_tiktoken_bpe(paths["tokenizer.tiktoken"])
    assert ranks == {t: i for i, t in spec.vocab.items() if i not in spec.special_tokens.values()}
    plain = tokenizers.models.BPE.from_file(paths["vocab.json"], paths["merges.txt"])
    assert plain.token_to_id("Ġnewest") == small_tokenizer.encode(" newest")[0]
    assert Tokenizer.from_files(paths["vocab.pkl"], paths["merges.pkl"]).spec == spec


def test_a_file_has_headers_and_a_tag_of_its_release(client, starter, monkeypatch):
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
    for tag, status in ((f"W/{etag}", 304), (f'"x", {etag}', 304), ('"x"', 200)):
        assert get_unless(client, path, tag).status_code == status
    unchanged = get_unless(client, path, etag)
    assert (unchanged.content, unchanged.headers["ETag"]) == (b"", etag)
    monkeypatch.setattr(artifact_files, "__version__", "99")  # which may render it anew
    assert get_unless(client, path, etag).status_code == 200


@pytest.mark.row(28, 30)
def test_a_path_that_is_no_sound_file_of_a_version_is_refused(own_client, store, starter):
    missing = "starter/20261121T041500Z-1a2b3c4d"
    for path, status, code in (
        ("starter/%2e%2e/tokenizer.json", 422, "invalid_tokenizer_name"),
        ("starter/%2e%2e%2f%2e%2e%2fx/manifest.json", 422, "invalid_tokenizer_name"),
        ("starter/newest/tokenizer.json", 422, "invalid_tokenizer_name"),
        (f"{missing}/tokenizer.json", 404, "tokenizer_not_found"),
        (f"{missing}/%2e%2e", 404, "file_not_found"),
    ):
        problem(own_client.get(f"/tokenizers/{path}"), status, code)
    damaged = store.root / "tokenizers" / starter.name / starter.version / "vocab.pkl"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    problem(own_client.get(address(starter, "vocab.pkl")), 409, "artifact_corrupt")
    assert own_client.get(address(starter, "merges.pkl")).status_code == 200


def test_an_unknown_tokenizer_is_refused_with_a_similar_name(client, starter):
    """Whoever gets this answer may also list the names: both need a read key."""
    wrong = f"{starter}"[:-1] + "01"[f"{starter}"[-1] == "0"]
    for method, path, body, near in (
        ("GET", "/tokenizers/startr", None, "starter"),
        ("POST", "/encode", {"text": "a", "tokenizer": "startr"}, "starter"),
        ("POST", "/encode", {"text": "a", "tokenizer": wrong}, starter.version),
        ("POST", "/tokenize", {"prompt": "a", "model": "startr"}, "starter"),
        ("GET", "/v1/models/startr", None, "starter"),
        ("PUT", ACTIVE, {"tokenizer": "startr"}, "starter"),
    ):
        answer = client.request(method, path, json=body, headers={"X-API-Key": ADMIN_KEY})
        problem(answer, 404)
        assert f"; did you mean {near}?; GET /" in answer.text
    assert "did you mean" not in client.get("/tokenizers/zz").text


def test_a_format_that_would_give_other_ids_is_refused_by_name(client, shared_store):
    vocab = {byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [], SPECIALS, normalizer="nfc")
    ref = shared_store.publish(spec, name="normalized")
    for file in ("tokenizer.tiktoken", "vocab.json", "merges.txt"):
        answer = client.get(address(ref, file))
        detail = problem(answer, 422, "format_cannot_hold_it")["detail"]
        assert file in detail
        assert "tokenizer.json" in detail  # the remedy
        assert answer.headers["Tokenizer-Version"] == str(ref)
    assert client.get(address(ref, "tokenizer.json")).status_code == 200
    assert client.app.services.budget.used == 0


def test_lists_and_the_active_one_are_not_sent_again(
    own_client, store, starter, other_spec, tmp_path
):
    listed = "/tokenizers/starter"
    tags = {path: own_client.get(path).headers["ETag"] for path in (listed, ACTIVE)}
    for path, tag in tags.items():
        unchanged = get_unless(own_client, path, tag)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == tag
    assert unchanged.headers["Tokenizer-Version"] == str(starter)
    newer = store.publish(other_spec, name="starter")
    changed = get_unless(own_client, listed, tags[listed])
    versions = [entry["version"] for entry in changed.json()["tokenizers"]]
    assert versions == [newer.version, starter.version]
    # A version that is not served has files too, and stays outside the memory.
    path = download(own_client, newer, tmp_path, "tokenizer.json")
    assert tokenizers.Tokenizer.from_file(path).encode("a").ids == [1097]
    loaded = own_client.app.services.live.loaded()
    assert [live.ref for live in loaded] == [starter]
    assert promote(own_client, newer) == 200
    # The list shows the active tokenizer as well.
    assert get_unless(own_client, listed, changed.headers["ETag"]).status_code == 200
    assert get_unless(own_client, ACTIVE, tags[ACTIVE]).json()["digest"] == newer.digest


def test_versions_that_differ_in_chat_templates_alone_have_tags_of_their_own(
    own_client, store, small_spec
):
    one, two = (
        store.publish(small_spec.with_chat(ChatTemplates({"default": template})), name="chat")
        for template in ("one", "two")
    )
    assert one.digest == two.digest
    assert promote(own_client, one) == 200
    old = own_client.get(ACTIVE).headers["ETag"]
    assert promote(own_client, two, old) == 200
    assert get_unless(own_client, ACTIVE, old).json()["version"] == two.version
    assert promote(own_client, one, old) == 412
    assert promote(own_client, one, f'"{two.digest}"') == 200
    shown = own_client.get(address(two, CHAT_FILE)).json()
    assert shown["templates"] == {"default": "two"}
    for file in MEDIA_TYPES:
        tags = {own_client.get(address(ref, file)).headers["ETag"] for ref in (one, two)}
        assert len(tags) == 2, file


def test_a_version_is_removed_under_no_other_digest(
    own_client, store, starter, other_spec, monkeypatch
):
    other = store.publish(other_spec, name="other")

    def remove(**tag):
        headers = {"X-API-Key": ADMIN_KEY, **tag}
        return own_client.delete(f"/tokenizers/other/{other.version}", headers=headers)

    for tag in ('"wrong"', ""):
        problem(remove(**{"If-Match": tag}), 412, "digest_mismatch")
    assert store.versions("other") == [other]
    listed = ArtifactStore.list

    def list_and_remove(self):
        refs = listed(self)
        assert remove().status_code == 204
        return refs

    # It is left out of a list that is made meanwhile.
    monkeypatch.setattr(ArtifactStore, "list", list_and_remove)
    answer = own_client.get("/tokenizers")
    assert [found["name"] for found in answer.json()["tokenizers"]] == [starter.name]
