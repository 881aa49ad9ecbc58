"""`tokenizer train --extend` and `tokenizer shrink`: what they publish and write."""

import hashlib
import json

import numpy as np

MORE = "zebra zebras zebra low<|endoftext|>lowest zebra"


def encode(cli, name, text):
    return json.loads(cli.run("encode", "--tokenizer", name, text, "--json")[0])


def test_a_published_tokenizer_is_extended_and_shrunk(trained):
    (trained.folder / "more.txt").write_text(MORE)
    maps = ("--id-map=ids.npy", "--embedding-parts=parts.npy")
    trained.run("train", "more.txt", "--extend=worked", "--vocab-size=268", "--name=more", *maps)
    shown = json.loads(trained.run("inspect", "more", "--json")[0])
    base = json.loads(trained.run("inspect", "worked", "--json")[0])
    assert shown["training"]["extends"] == base["fingerprint"]
    assert np.load(trained.folder / "ids.npy").tolist() == [*range(265)]
    parts = np.load(trained.folder / "parts.npy").tolist()
    assert parts[:265] == [[id_, id_] for id_ in range(265)]
    before = {new: [old for n, old in parts if n == new] for new in (265, 266, 267)}
    assert all(len(olds) > 1 for olds in before.values())
    ids = [part for id_ in encode(trained, "more", MORE) for part in before.get(id_, [id_])]
    assert ids == encode(trained, "worked", MORE)
    assert len(ids) > len(encode(trained, "more", MORE))

    out, _ = trained.run("shrink", "more", "more.txt", "--name=small", *maps, "--separator=")
    n_kept = len(np.load(trained.folder / "parts.npy"))
    assert out.decode().startswith(f"{n_kept} of the 268 tokens of more: the text uses ")
    new_ids = np.load(trained.folder / "ids.npy")
    assert new_ids[encode(trained, "more", MORE)].tolist() == encode(trained, "small", MORE)
    provenance = json.loads(trained.run("inspect", "small", "--json")[0])["provenance"]
    digest = hashlib.sha256(MORE.encode()).hexdigest()
    assert provenance == [{"name": "more.txt", "size_bytes": len(MORE), "sha256": digest}]


def test_counts_of_its_own_pattern_extend_a_tokenizer(trained):
    (trained.folder / "more.txt").write_text(MORE)
    for source in (["more.txt", "--save-counts=c.counts"], ["--from-counts=c.counts"]):
        sizes = ("--vocab-size=266,268", "--name", f"n{len(source)}")
        trained.run("train", *source, "--extend=worked", *sizes)
    found = {each["name"]: each["digest"] for each in json.loads(trained.run("list", "--json")[0])}
    assert found["n1-268"] == found["n2-268"]
    assert found["n1-266"] == found["n2-266"]


def test_options_that_contradict_an_extension_are_refused(trained):
    for options, told in (
        (("--extend=worked", "--pattern=gpt2", "--seed-token=zz"), "leave out --pattern, --seed-"),
        (("--id-map=i.npy",), "--id-map and --embedding-parts belong to --extend"),
        (("--extend=worked", "--id-map=i.npy", "--vocab-size=267,268"), "are of one size"),
    ):
        assert told in trained.fail("train", "corpus.txt", *options, code=2)
    error = trained.fail("train", "corpus.txt", "--extend=worked", "--vocab-size=264")
    assert "the 265 entries of the tokenizer to extend need at least 265" in error
    error = trained.fail(
        "shrink", "worked", "corpus.txt", "--name=x", "--id-map=corpus.txt", code=2
    )
    assert "corpus.txt is also an input" in error
