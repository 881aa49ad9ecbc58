"""TokenizerSpec: its repr and its fingerprint."""

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.presets import find_preset, load_path_spec
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import AddedToken, TokenizerSpec

BYTES = {i: bytes([i]) for i in range(256)}


def test_the_repr_of_a_spec_is_short():
    spec = TokenizerSpec.from_merges(
        BYTES | {256: b"ab"},
        [(b"a", b"b")],
        [AddedToken("<|end|>", 257)],
        pattern=r"\s+|\S+" * 50,
    )
    shown = repr(spec)
    assert len(shown) < 200
    for part in ("merges: 258 tokens (1 added)", "1 merges", "pattern custom", "none"):
        assert part in shown
    assert spec.fingerprint[:12] in shown


def test_dialect_and_unmatched_rule_are_part_of_the_fingerprint():
    patterns = [
        SplitPattern("custom", r"\s+|\S+", dialect, unmatched)
        for dialect in ("python", "fancy-regex", "oniguruma")
        for unmatched in ("keep", "drop")
    ]
    found = {TokenizerSpec.from_merges(BYTES, [], pattern=one).fingerprint for one in patterns}
    assert len(found) == 6


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


def test_small_specs_and_committed_artifacts_have_their_fingerprints():
    """If one changed, every manifest with it would be refused."""
    ranks = {token: id_ for id_, token in BYTES.items()}
    specs = [
        TokenizerSpec.from_merges(BYTES, []),
        TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+"),
        TokenizerSpec.from_ranks(ranks, pattern="cl100k"),
    ]
    found = [spec.fingerprint[:12] for spec in specs]
    assert found == ["3aa343a83c9d", "4905c41cc401", "6ee42ed0b8bd"]
    store = ArtifactStore(REPOSITORY / "artifacts")
    for name, fingerprint in [("starter", STARTER), ("gpt2", GPT2)]:
        assert store.open(store.resolve(name)).fingerprint == fingerprint


@pytest.mark.shared_data
@pytest.mark.parametrize("name", [*PRESETS, *FILES])
def test_a_published_vocabulary_has_its_fingerprint(name, shared_data):
    if name in PRESETS:
        preset = find_preset(name)
        spec = preset.build_spec((shared_data / "vocab" / preset.file_name).read_bytes())
    else:
        [path] = shared_data.glob(f"vocab*/{name}")
        spec = load_path_spec(path)
    assert spec.fingerprint == (PRESETS | FILES)[name]


def test_a_byte_that_only_a_special_token_has_is_missing():
    ranks = {token: id_ for id_, token in BYTES.items() if token != b"1"}
    with pytest.raises(InvalidSpecError, match=r"byte 0x31.*leave out the special token"):
        TokenizerSpec.from_ranks(ranks, {"1": 49}, pattern="gpt2")


@pytest.mark.parametrize("pattern", [r"[a-c[x-z]]+", r"\s+|\S+"])
def test_an_expression_for_ranks_is_read_as_tiktoken_reads_it(pattern):
    ranks = {token: id_ for id_, token in BYTES.items()}
    spec = TokenizerSpec.from_ranks(ranks, pattern=pattern)
    assert spec.pattern == SplitPattern("custom", pattern, "fancy-regex", "drop")
    given = SplitPattern("custom", pattern, "python", "keep")
    assert TokenizerSpec.from_ranks(ranks, pattern=given).pattern == given
    assert TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+").pattern.dialect == "python"
