"""The chat templates of a model folder: where they are read, and what goes first.

`tests/integration/tokenizer_core/compat/transformers_checks.py` compares CASES with transformers.
"""

import pytest

from tests.tokenizer_core.formats.chat_folders import CASES, make_chat_folder
from tests.tokenizer_core.formats.model_folders import make_folder
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.model_folder import FILE_NAMES


@pytest.mark.parametrize("name", CASES)
def test_where_templates_are_read(name, tmp_path):
    case = CASES[name]
    tokenizer = Tokenizer.load(make_chat_folder(tmp_path / "model", case))
    assert dict(tokenizer.chat_templates) == case.templates
    assert dict(tokenizer.template_variables) == case.variables
    assert tokenizer == Tokenizer.load(make_folder(tmp_path / "plain", **case.tables))


def test_the_file_of_a_processor_is_read_last(tmp_path):
    config = {"chat_template": None}
    folder = make_folder(tmp_path / "m", tokenizer_config=config, chat_template={})
    with pytest.raises(FormatError, match=r"chat_template\.json: chat_template is neither"):
        Tokenizer.load(folder)
    (folder / "chat_template.json").write_text('{"chat_template": "p"}')
    assert dict(Tokenizer.load(folder).chat_templates) == {"default": "p"}
    (folder / "chat_template.jinja").write_text("j")
    assert dict(Tokenizer.load(folder).chat_templates) == {"default": "j"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, "chat_template is neither a text nor a list"),
        ([{"name": "a"}], "an entry without name or template"),
        (["a"], "an entry without name or template"),
        ([{"name": "../a", "template": "x"}], r"model: the name '\.\./a' of a chat template"),
    ],
)
def test_a_malformed_field_is_refused(value, words, tmp_path):
    folder = make_folder(tmp_path / "model", tokenizer_config={"chat_template": value})
    with pytest.raises(FormatError, match=words):
        Tokenizer.load(folder)


def test_a_malformed_file_is_refused(tmp_path):
    folder = make_folder(tmp_path / "model", tokenizer_config={})
    (folder / "chat_template.jinja").write_bytes(b"a\xff")
    with pytest.raises(FormatError, match=r"chat_template\.jinja is not UTF-8 at byte 1"):
        Tokenizer.load(folder)
    (folder / "chat_template.jinja").write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(FormatError, match="1048576"):
        Tokenizer.load(folder)
    (folder / "chat_template.jinja").unlink()
    (folder / "additional_chat_templates").mkdir()
    for i in range(17):
        (folder / "additional_chat_templates" / f"{i}.jinja").write_bytes(b"a")
    with pytest.raises(FormatError, match="model has 17 chat templates; keep 16"):
        Tokenizer.load(folder)


def test_a_download_has_the_templates():
    assert {"chat_template.jinja", "additional_chat_templates/*.jinja"} < set(FILE_NAMES)
