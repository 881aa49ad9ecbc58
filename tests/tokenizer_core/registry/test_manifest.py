"""The manifest as a dataclass."""

import pytest

from tests.tokenizer_core.registry.test_folder_store import RICH, A
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.manifest_fields import parse_manifest_json, render_manifest_json
from tokenizer_core.registry.manifest import FileRecord, Manifest, describe

FILES = {name: FileRecord("0" * 64, 5) for name in ("vocab.pkl", "merges.pkl")}


@pytest.mark.parametrize("spec", [A, RICH])
def test_to_json_and_back(spec):
    manifest = describe(spec, name="t", version="v", files=FILES, training={"a": [1, None]})
    again = Manifest.from_json(manifest.to_json())
    assert again.to_json() == manifest.to_json()
    assert again.to_dict() == manifest.to_dict()
    assert again.fingerprint == spec.fingerprint
    assert again.build_spec(spec.vocab, spec.merges) == spec


def test_a_missing_field_is_refused():
    fields = parse_manifest_json(describe(A, name="t", version="v", files=FILES).to_json())
    named = ("name", "version", "created_at", "files", "provenance", "training", "command")
    for key in (*named, "libraries", "fingerprint"):
        others = {name: value for name, value in fields.items() if name != key}
        with pytest.raises(FormatError, match="malformed"):
            Manifest.from_json(render_manifest_json(others))
