"""The chat templates in a model folder of Hugging Face, as `transformers` 5 finds them.

`chat_template.jinja` and `additional_chat_templates/NAME.jinja` replace all templates of
`tokenizer_config.json`. `chat_template.json`, which old processors wrote, is read if there is no
other.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.blobs.atomic_files import read_whole_file
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.spec.chat_templates import (
    DEFAULT,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATES,
    ChatTemplates,
    is_variable_name,
)
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

CONFIG_FIELD: Final = "chat_template"
_CONFIG: Final = "tokenizer_config.json"
_FILE: Final = "chat_template.jinja"
_FOLDER: Final = "additional_chat_templates"
_OLD_FILE: Final = "chat_template.json"

CHAT_FILE_NAMES: Final = (_FILE, f"{_FOLDER}/*.jinja", _OLD_FILE)
"""The files of templates in a model folder, as patterns."""


def read_chat_templates(
    folder: str | os.PathLike[str], config: Mapping[str, Any], named: Mapping[str, str]
) -> ChatTemplates:
    """The templates of a model folder with this `tokenizer_config.json`, whose named tokens are
    `named` (`bos_token` ...). Raises FormatError: a file is not UTF-8 or malformed, or there are
    more templates, or longer ones, than allowed."""
    folder = Path(folder)
    sources: Mapping[str, str] = _sources_of_files(folder)
    if not sources and config.get(CONFIG_FIELD) is not None:
        sources = _sources_of_field(config[CONFIG_FIELD], _CONFIG)
    if not sources and (folder / _OLD_FILE).is_file():
        data = read_whole_file(folder / _OLD_FILE, max_bytes=MAX_TEMPLATES * MAX_TEMPLATE_BYTES)
        table = parse_strict_json(data, _OLD_FILE)
        found = table.get(CONFIG_FIELD) if isinstance(table, dict) else None
        sources = _sources_of_field(found, _OLD_FILE)
    variables = {name: value for name, value in named.items() if is_variable_name(name)}
    try:
        return ChatTemplates(sources, variables)
    except InvalidSpecError as error:
        raise FormatError(f"{folder.name}: {error}") from None


def read_template_file(path: str | os.PathLike[str]) -> str:
    """The source in a file of UTF-8. `\\r\\n` and `\\r` become `\\n`, as in transformers. Raises
    FormatError: it is not UTF-8, or it is larger than 1 MiB."""
    data = read_whole_file(path, max_bytes=MAX_TEMPLATE_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{Path(path).name} is not UTF-8 at byte {error.start}; convert it first"
        ) from None
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def template_field(sources: Mapping[str, str]) -> str | list[dict[str, str]]:
    """The value of `chat_template` in `tokenizer_config.json`, which transformers 4 and 5 read."""
    if sources.keys() == {DEFAULT}:
        return sources[DEFAULT]
    return [{"name": name, "template": source} for name, source in sources.items()]


def existing_template_file(folder: Path) -> Path | None:
    """A file that would replace the templates of `tokenizer_config.json` in this folder."""
    found = [folder / _FILE, *(folder / _FOLDER).glob("*.jinja")]
    return next((path for path in found if path.exists()), None)


def _sources_of_files(folder: Path) -> dict[str, str]:
    """The templates in files of their own; one called `default` replaces `chat_template.jinja`."""
    paths = {DEFAULT: folder / _FILE} if (folder / _FILE).is_file() else {}
    for path in sorted((folder / _FOLDER).glob("*.jinja")):
        paths[path.name.removesuffix(".jinja")] = path
    if len(paths) > MAX_TEMPLATES:
        raise FormatError(
            f"{folder.name} has {len(paths)} chat templates; keep {MAX_TEMPLATES} of them"
        )
    return {name: read_template_file(path) for name, path in paths.items()}


def _sources_of_field(value: object, where: str) -> dict[str, str]:
    if isinstance(value, str):
        return {DEFAULT: value}
    if not isinstance(value, list):
        raise FormatError(f"{where}: {CONFIG_FIELD} is neither a text nor a list")
    sources: dict[str, str] = {}
    for entry in value:
        name, source = (
            (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(source, str):
            raise FormatError(f"{where}: {CONFIG_FIELD} has an entry without name or template")
        sources[name] = source
    return sources
