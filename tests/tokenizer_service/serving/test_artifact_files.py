"""Rendered files are cached, within the limit."""

from types import SimpleNamespace

from tokenizer_service.serving import artifact_files
from tokenizer_service.serving.artifact_files import RENDERED, ArtifactFiles

NOTHING_LOADED = SimpleNamespace(loaded=list)


def test_rendered_files_are_kept_up_to_the_limit(store, starter, other_spec, monkeypatch):
    rendered = []
    render = artifact_files._render

    def note(spec, filename):
        rendered.append(filename)
        return render(spec, filename)

    monkeypatch.setattr(artifact_files, "_render", note)
    files = ArtifactFiles(store, NOTHING_LOADED)
    first = {name: files.read(starter, name) for name in RENDERED}
    assert {name: files.read(starter, name) for name in RENDERED} == first
    assert rendered == ["tokenizer.json", "vocab.json", "tokenizer.tiktoken"]  # has merges

    other = store.publish(other_spec, name="other")
    size = len(first["tokenizer.json"])
    files = ArtifactFiles(store, NOTHING_LOADED, max_kept_bytes=size)
    for ref in (starter, starter, other, starter):
        assert files.read(ref, "tokenizer.json")
    assert len(rendered) == 3 + 3  # the other entry replaced the first one
    nothing = ArtifactFiles(store, NOTHING_LOADED, max_kept_bytes=size - 1)
    assert nothing.read(starter, "tokenizer.json") == nothing.read(starter, "tokenizer.json")
    assert len(rendered) == 3 + 3 + 2
