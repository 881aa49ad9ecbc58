"""The fingerprints of published vocabularies: if one changed, every manifest with it is refused."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.presets import find_preset, load_path_spec
from tokenizer_core.registry import ArtifactStore

STARTER = "a9df1cc4e3c1a3500669fd41ae3928bf7aecf84e661e6350fe9e6d26dd119949"
GPT2 = "9d39b78957bce1d53289e6164c8adbf8c196b916bce5a9d5cdbc5cf011c4ad8a"

PRESETS = {
    "gpt2": GPT2,
    "r50k_base": GPT2,
    "cl100k_base": "ed3ea4c807806e66e06c5f7b9f60b079ae796cf90e5d14f4ff507c64b100d499",
    "o200k_base": "92b8763dde69170c666212108b9fc030fcead785a21583a7c99923fc8e816229",
    "o200k_harmony": "e98d13742dea156bbcd9cc065607332f0e522b8e80db4817ca74caa5a7d8d774",
}
FILES = {
    "llama2.tokenizer.json": "64aaf31db991e58ef1ee4a537e354c83efbfcf57796b1d8fb2c0fe5eae2df84d",
    "modernbert.tokenizer.json": "bedb3176c7f728154bb8af082ff375c1ecf72ef21596cf0a337a89b281751512",
    "phi2.tokenizer.json": "d7814b4f9043e2625b19451feb14ae604a5cb877d34665ab6cdc70a23f9fa71e",
    "tekken_240911.json": "c2f1f0499755dbbb0a0bb683ab777d88d1681ed34913959b7b556b2513ee52f0",
}


@pytest.mark.parametrize(("name", "fingerprint"), [("starter", STARTER), ("gpt2", GPT2)])
def test_a_committed_artifact_has_its_fingerprint(name, fingerprint):
    store = ArtifactStore(REPOSITORY / "artifacts")
    assert store.open(store.resolve(name)).fingerprint == fingerprint


@pytest.mark.shared_data
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_its_fingerprint(name, shared_data: Path):
    preset = find_preset(name)
    data = (shared_data / "vocab" / preset.file_name).read_bytes()
    assert preset.build_spec(data).fingerprint == PRESETS[name]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", FILES)
def test_a_published_file_has_its_fingerprint(name, shared_data: Path):
    [path] = shared_data.glob(f"vocab*/{name}")
    assert load_path_spec(path).fingerprint == FILES[name]
