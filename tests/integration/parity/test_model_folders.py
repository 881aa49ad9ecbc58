"""Model folders give the ids of `transformers.AutoTokenizer`."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.adversarial import adversarial_texts
from tests.integration.parity.transformers_reader import TransformersReader
from tests.tokenizer_core.formats.model_folders import ACCEPTED, TEXTS, make_folder
from tokenizer_core import Tokenizer

pytestmark = pytest.mark.skipif(
    not TransformersReader.is_there(), reason="transformers is not there; make test-all installs it"
)


def check(folder, texts):
    ours = Tokenizer.load(folder)
    with TransformersReader("AutoTokenizer", str(folder)) as theirs:
        assert theirs.encode(texts) == [
            ours.encode(text, add_special_tokens=True) for text in texts
        ]


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_made_folder(name, tmp_path):
    arguments = {"config": {}, **ACCEPTED[name]}
    check(make_folder(tmp_path / "model", **arguments), [*adversarial_texts(), *TEXTS])


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("file", "config"),
    [
        ("qwen3", {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False}),
        ("llama3_1", {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ("gpt2", {"tokenizer_class": "GPT2Tokenizer"}),
    ],
)
def test_a_published_file_with_its_class(file, config, tmp_path, shared_data):
    shutil.copyfile(shared_data / "vocab" / f"{file}.tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text("{}")
    check(tmp_path, [*adversarial_texts(), *TEXTS])
