"""Both kinds of store through the same tests; then the store in shared storage, here a folder.

`tests/integration` runs the same tests on object storage.
"""

import functools
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_core.registry.test_folder_store import TALKING, A, B
from tokenizer_core.errors import (
    AliasTakenError,
    ArtifactCorruptError,
    ArtifactInUseError,
    ArtifactNameError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    ModelNotFoundError,
    NameReservedError,
    PointerMovedError,
    StorageError,
)
from tokenizer_core.presets import PRESETS, load_preset_spec
from tokenizer_core.registry import bucket_store, open_artifacts
from tokenizer_core.registry import store as store_module
from tokenizer_core.registry.bucket_store import BucketArtifactStore
from tokenizer_core.registry.pointer import MAX_EARLIER


@pytest.fixture
def objects(tmp_path):
    """Makes the store of a host in storage that the hosts share."""
    address = str(tmp_path / "storage")
    return lambda host="a": BucketArtifactStore(address, tmp_path / host)


@pytest.fixture(params=["folder", "storage"])
def make(request, tmp_path, objects):
    if request.param == "storage":
        return objects
    return lambda host="a": open_artifacts(str(tmp_path / "shared"), tmp_path / host)


def test_hosts_share_versions_and_the_pointer(make):
    here, there = make("a"), make("b")
    a = here.publish(A, name="t")
    assert here.publish(A, name="t") == there.publish(A, name="t") == a
    b = there.publish(B, name="t")
    assert b.version > a.version
    assert here.resolve(str(b)) == b
    assert here.open(b) == there.open(b) == B
    assert make("c").list() == [a, b]
    assert here.active() is None
    mark = there.pointer_mark()
    assert here.promote(a) is None
    assert there.pointer_mark() != mark
    assert (there.active(), there.promote(b), here.active()) == (a, a, b)
    assert here.previously_active() == a
    with pytest.raises(ArtifactInUseError):
        here.remove(b.name, b.version)
    there.remove(a.name, a.version)
    with pytest.raises(ArtifactNotFoundError):
        here.resolve(str(a))
    with pytest.raises(ArtifactNotFoundError):
        here.promote(a)
    assert there.active() == b


def test_a_promotion_that_was_overtaken_or_fenced_is_refused(make):
    here, there = make("a"), make("b")
    a, b = here.publish(A, name="t"), here.publish(B, name="u")
    for change in (there.fence, lambda: there.promote(b), there.fence):
        state, named = here.pointer_state(), here.active()
        change()
        assert here.pointer_state().generation == state.generation + 1
        after = here.active()
        for ref in (a, b):
            with pytest.raises(PointerMovedError):
                here.promote(ref, expected=state)
        assert here.active() == after
        assert named == after or after == b
    assert here.promote(a, expected=here.pointer_state()) == b


def test_the_recorded_default_is_what_serves_until_a_promotion(make, monkeypatch):
    store, there = make("a"), make("b")
    first, other = store.publish(A, name="t"), store.publish(A, name="u")
    assert store.resolve_default("t") == first
    write, refs = store._move_pointer, []

    def be_overtaken(data, state, ref):
        monkeypatch.undo()
        refs.append(there.record_default(first))
        return write(data, state, ref)

    newer = store.publish(B, name="t")
    assert store.resolve_default("t") == newer
    monkeypatch.setattr(store, "_move_pointer", be_overtaken)
    assert [store.record_default(newer), *refs] == [first, first]
    assert store.active() is None
    assert store.resolve_default("t") == first
    assert store.resolve_default(str(newer)) == newer
    assert store.in_use("t") == {str(first): "it is the default (TOKENIZER_DEFAULT)"}
    assert store.models()["t"] == str(first)
    with pytest.raises(ArtifactNotFoundError, match="nothing was promoted"):
        store.served_before("t")

    assert store.record_default(other) == other  # the setting changed, and changed back
    assert store.record_default(newer) == first
    tag = store.pointer_state().tag
    assert store.record_default(first) == first
    assert store.pointer_state().tag == tag  # a store that cannot be written serves it too
    assert store.history() == [str(first), str(other)]
    store.promote(newer)
    assert store.record_default(other) == other
    assert (store.active(), store.served_before("t")) == (newer, first)


def test_a_default_that_was_removed_while_another_one_served_is_its_newest(make):
    store = make("a")
    first = store.record_default(store.publish(A, name="t"))
    store.record_default(store.publish(A, name="u"))
    newer = store.publish(B, name="t")
    store.remove(first.name, first.version)
    assert store.record_default(store.resolve_default("t")) == newer
    store.publish(A, name="t")
    store.remove(newer.name, newer.version)  # it serves
    with pytest.raises(ArtifactNotFoundError, match=newer.version):
        store.resolve_default("t")


@pytest.mark.row(37)
def test_a_host_opens_its_copy_of_an_active_version_that_the_storage_lost(objects, tmp_path):
    here = objects("a")
    ref = here.publish(A, name="t")
    here.promote(ref)
    here.open(ref)
    manifest = tmp_path / "storage" / "tokenizers" / "t" / ref.version / "manifest.json"
    manifest.write_text("{}")
    assert here.open(here.active()) == A
    with pytest.raises(ArtifactCorruptError) as caught:
        objects("b").active()
    assert (caught.value.version, caught.value.file) == (str(ref), "manifest.json")
    manifest.unlink()
    assert here.open(here.active()) == A
    with pytest.raises(ArtifactNotFoundError):
        here.resolve(str(ref))


def test_hosts_that_publish_and_promote_at_once_all_succeed(make):
    def work(host, spec):
        store = make(host)
        store.promote(store.publish(spec, name="t"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("h0", "h1", "h2"), (A, A, B)))
    store = make("after")
    assert {ref.digest for ref in store.list()} == {A.fingerprint, B.fingerprint}
    assert store.pointer_state().generation >= 2
    store.open(store.active())


def test_a_publisher_that_dies_leaves_nothing_visible(objects, monkeypatch):
    def die():
        raise StorageError("it is away")

    for name in ("vocab.pkl", "merges.pkl", "manifest.json"):
        store = objects()
        interrupt(monkeypatch, store, "create", name, die)
        with pytest.raises(ArtifactStorageError):
            store.publish(A, name="t")
        assert objects("other").list() == []
    assert objects("other").open(objects().publish(A, name="t")) == A


def interrupt(monkeypatch, store, call, name, then):
    """Runs something else before the next `call` of the storage for a name with this ending."""
    store.names()  # which opens the storage
    original = getattr(store._storage, call)
    left = [then]

    def interrupted(wanted, *arguments, **options):
        if wanted.endswith(name) and left:
            left.pop()()
        return original(wanted, *arguments, **options)

    monkeypatch.setattr(store._storage, call, interrupted)


@pytest.mark.parametrize("promoted_before", [False, True])
def test_a_version_removed_during_its_promotion_advances_the_generation(
    objects, monkeypatch, promoted_before
):
    here, there = objects("a"), objects("b")
    a, b = here.publish(A, name="t"), here.publish(B, name="u")
    if promoted_before:
        here.promote(a)
    prepared = there.pointer_state()
    place = f"tokenizers/u/{b.version}/manifest.json"
    there.names()
    removed = functools.partial(there._storage.remove, place)
    interrupt(monkeypatch, here, "swap", "active.json", removed)
    with pytest.raises(ArtifactNotFoundError):
        here.promote(b)
    assert here.active() == (a if promoted_before else None)
    assert here.pointer_state().generation == prepared.generation + 2
    c = there.publish(B, name="v")
    with pytest.raises(PointerMovedError):
        there.promote(c, expected=prepared)
    there.promote(c)
    assert here.active() == c


def test_a_removal_that_cannot_see_the_pointer_puts_the_version_back(objects, monkeypatch):
    store = objects("a")
    ref = store.publish(A, name="t")

    def fail(*_, **__):
        raise StorageError("the storage is unreachable")

    with monkeypatch.context() as patch:
        unreachable = functools.partial(patch.setattr, store._storage, "read_versioned", fail)
        interrupt(patch, store, "remove", "manifest.json", unreachable)
        with pytest.raises(ArtifactStorageError):
            store.remove(ref.name, ref.version)
    assert objects("b").open(ref) == A


def test_a_slow_publisher_whose_files_were_cleaned_away_publishes_a_whole_version(
    objects, monkeypatch
):
    here, cleaner = objects("a"), objects("b")
    monkeypatch.setattr(store_module, "next_version", lambda *_: next(versions))
    versions = iter(["20200101T000000Z-00000000", "20990101T000000Z-00000000"])
    interrupt(monkeypatch, here, "create", "manifest.json", cleaner._clean)
    ref = here.publish(A, name="t")
    assert objects("c").open(ref) == A
    assert objects("d").list() == [ref]


def test_the_cleaner_puts_back_a_file_whose_manifest_appears(objects, monkeypatch):
    here, cleaner = objects("a"), objects("b")
    monkeypatch.setattr(store_module, "next_version", lambda *_: "20200101T000000Z-00000000")
    ref = here.publish(A, name="t")
    place = f"tokenizers/t/{ref.version}/manifest.json"
    data = here._storage.read(place, max_bytes=1 << 20)
    here._storage.remove(place)
    back = functools.partial(here._storage.create, place, data)
    interrupt(monkeypatch, cleaner, "remove", "merges.pkl", back)
    cleaner._clean()
    assert objects("c").open(ref) == A


def test_a_pointer_that_is_too_large_is_replaced_by_promoting(make):
    store = make()
    a = store.publish(A, name="t")
    store.promote(a)
    large = b"x" * (1 << 17)
    if isinstance(store, bucket_store.BucketArtifactStore):
        store._storage.put("active.json", large)
    else:
        (store.root / "active.json").write_bytes(large)
    mark = store.pointer_mark()
    with pytest.raises(ArtifactCorruptError, match="larger than"):
        store.active()
    other = make("other")
    assert other.promote(a, expected=other.pointer_state()) is None
    assert store.pointer_mark() != mark
    assert store.active() == a


def test_the_cache_keeps_the_active_version(objects, tmp_path, monkeypatch):
    monkeypatch.setattr(bucket_store, "CACHED_VERSIONS", 2)
    store = objects()
    refs = [store.publish(trained_spec(n), name=f"t{n}") for n in range(1, 5)]
    store.promote(refs[0])
    for ref in refs[1:]:
        time.sleep(0.01)  # a file system's clock is coarse
        store.open(ref)
    cached = {path.parent.parent.name for path in (tmp_path / "a").rglob("manifest.json")}
    assert cached == {"t1", "t3", "t4"}


def test_a_damaged_version_is_fetched_again_or_published_anew(objects, tmp_path):
    store = objects()
    ref = store.publish(A, name="t")
    for read in (store.open, store.load, lambda ref: store.read_file(ref, "vocab.pkl")):
        found = read(ref)
        [path] = (tmp_path / "a").rglob("vocab.pkl")
        path.write_bytes(b"")
        assert read(ref) == found
    store._storage.put(f"tokenizers/t/{ref.version}/vocab.pkl", b"damaged")
    again = store.publish(A, name="t")
    assert again != ref
    assert objects("b").open(again) == A


def test_leftovers_of_killed_processes_are_removed_from_the_cache(objects, tmp_path):
    store = objects()
    store.open(store.publish(A, name="t"))
    [staging] = (tmp_path / "a").rglob(".staging")
    for name, age_seconds in (("left", 2 * 86400), ("made", 0)):
        (staging / name).mkdir()
        os.utime(staging / name, (time.time() - age_seconds,) * 2)
    store.open(store.publish(B, name="u"))
    assert [path.name for path in staging.iterdir()] == ["made"]


def test_two_hosts_publish_one_vocabulary_with_other_templates(objects, monkeypatch):
    """Both choose the same version, as their clocks and digests agree."""
    versions = iter(["20261120T041500Z-00000000"] * 2 + ["20261121T041500Z-00000000"])
    monkeypatch.setattr(BucketArtifactStore, "_version_names", lambda *_: [])
    monkeypatch.setattr(store_module, "next_version", lambda *_: next(versions))
    first = objects("a").publish(A, name="t")
    second = objects("b").publish(TALKING, name="t")
    assert first.version != second.version
    assert objects("c").open(first).chat == A.chat
    assert objects("c").open(second).chat == TALKING.chat


def test_an_alias_follows_the_promoted_version_of_its_name(make):
    here, there = make("a"), make("b")
    old, new, other = (here.publish(spec, name=n) for spec, n in ((A, "t"), (B, "t"), (A, "u")))
    alias = "Qwen/Qwen3-8B:free"
    here.add_alias(alias, "t")
    here.add_alias(alias, "t")
    assert there.aliases() == {alias: "t"}
    served = []
    for promoted in (None, old, other, new):
        if promoted is not None:
            here.promote(promoted)
        assert there.resolve_model(alias) == there.resolve_model("t")
        served.append(there.resolve_model(alias))
    assert served == [new, old, old, new]
    assert there.resolve_model(str(old)) == old
    here.publish(A, name="t")  # which nobody promotes
    for name in map("n{}".format, range(MAX_EARLIER + 2)):
        here.promote(here.publish(A, name=name))
    assert there.resolve_model(alias) == new
    there.remove_alias(alias)
    assert make("c").aliases() == {}
    for model in (alias, "", "none", f"none@{old.version}", "t@20000101T000000Z-00000000"):
        with pytest.raises(ModelNotFoundError):
            make("c").resolve_model(model)


@pytest.mark.parametrize(
    ("alias", "name", "error"),
    [
        ("qwen", "u", AliasTakenError),  # it is one of t
        ("u", "t", AliasTakenError),  # a tokenizer's name
        ("gpt2", "t", NameReservedError),
        ("starter", "t", NameReservedError),
        ("new", "none", ArtifactNotFoundError),
        ("", "t", ArtifactNameError),
        ("a\n", "t", ArtifactNameError),
        ("a" * 201, "t", ArtifactNameError),
        ("active", "t", ArtifactNameError),
        ("t@20261121T041500Z-1a2b3c4d", "t", ArtifactNameError),
    ],
)
def test_an_alias_that_is_taken_or_malformed_is_refused(make, alias, name, error):
    store = make()
    store.publish(A, name="t")
    store.publish(A, name="u")
    for known in ("qwen", "a" * 200):
        store.add_alias(known, "t")
    with pytest.raises(error):
        store.add_alias(alias, name)
    with pytest.raises(AliasTakenError):
        store.publish(A, name="qwen")
    with pytest.raises(ModelNotFoundError):
        store.remove_alias("u")
    assert store.aliases() == {"qwen": "t", "a" * 200: "t"}


def test_the_name_of_a_preset_belongs_to_its_ids(make):
    store = make()
    for name in PRESETS:
        with pytest.raises(NameReservedError, match=name):
            store.publish(A, name=name)
    ref = store.publish(load_preset_spec("gpt2"), name="gpt2")
    for _ in range(2):
        store.add_alias("r50k_base", "gpt2")
    assert store.resolve_model("r50k_base") == ref


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"a": 1}', b'{"a": "../x"}', b'{"\\u00e9": "t"}', b"x" * (1 << 20)]
)
def test_damaged_aliases_are_an_error_and_do_not_stop_a_publisher(make, tmp_path, content):
    ref = make().publish(A, name="t")
    root = next(tmp_path.glob("s*"))  # not the folder of a host
    (root / "aliases.json").write_bytes(content)
    for ask, asked in (("resolve_model", ["qwen"]), ("add_alias", ["qwen", "t"])):
        with pytest.raises(ArtifactStorageError, match="remove the file, and add the aliases"):
            getattr(make(), ask)(*asked)
    assert make().resolve_model("t") == ref
    make().publish(B, name="t")


def test_aliases_are_known_while_the_storage_is_unreachable(objects, monkeypatch):
    objects().publish(A, name="t")
    objects().add_alias("qwen", "t")
    assert objects().aliases() == {"qwen": "t"}

    def fail(address):
        raise StorageError("it is away")

    monkeypatch.setattr(bucket_store, "open_storage", fail)
    assert objects().aliases() == {"qwen": "t"}
    with pytest.raises(ArtifactStorageError):
        objects("b").aliases()


def test_no_other_version_answers_for_a_promoted_one_that_is_gone(make, tmp_path):
    make().publish(A, name="t")
    promoted = make().publish(B, name="t")
    make().add_alias("qwen", "t")
    make().promote(promoted)
    root = next(tmp_path.glob("s*"))  # not the folder of a host
    shutil.rmtree(root / "tokenizers" / "t" / promoted.version)
    for model in ("t", "qwen"):
        with pytest.raises(ArtifactNotFoundError, match=promoted.version):
            make("b").resolve_model(model)
    assert make("b").models() == {"qwen": str(promoted), "t": str(promoted)}
