"""The chat templates of a tokenizer, as data: Jinja sources by name, the variables they read, what
else a model folder declares of its conversations, and which template a conversation takes.

They change no id of plain text. A published version stores them in one file, which its manifest
lists with digests of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from tokenizer_core.errors import ChatTemplateMissingError, FormatError, InvalidSpecError
from tokenizer_core.strict_json import parse_record, parse_strict_json, typed

CHAT_FILE: Final = "chat_templates.json"
"""The file of a published version that stores them."""

DEFAULT: Final = "default"
MAX_TEMPLATES: Final = 16
MAX_TEMPLATE_BYTES: Final = 1 << 20
_MAX_VARIABLES: Final = 1024
_MAX_TOKENS: Final = 1024
MAX_MODEL_LENGTH: Final = 1 << 31
"""`transformers` writes 10^30 for a model without a limit."""
MAX_CHAT_FILE_BYTES: Final = 32 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SIDES: Final = ("left", "right")
OUTPUT_PARSERS: Final = ("hermes", "qwen3", "deepseek_v3", "deepseek_v31")
"""What `chat.outputs` reads."""
SETTINGS: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        "padding_side": lambda value: value in SIDES,
        "model_input_names": lambda value: _are_texts(value),
        "additional_special_tokens": lambda value: _are_texts(value),
        "response_template": lambda value: isinstance(value, dict),
    }
)
"""Further settings of `tokenizer_config.json` that `transformers` follows, and what they may be."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """Chat templates and their variables.

    - `sources`: name -> Jinja source; `default` comes first, if there is one.
    - `variables`: what a template reads of the tokenizer (`bos_token`, `eos_token`, ...). None: no
      file says, so they follow from the special tokens.
    - `stop_tokens`: the tokens that end the model's answer: those of `eos_token_id` in
      `generation_config.json`.
    - `control_tokens`: added tokens that no user may write, beside the special ones and those that
      a template writes.
    - `model_max_length`: the most tokens of a text, from 1 to 2^31; None: no limit is declared.
    - `max_model_len`: the most tokens of prompt and answer in the served model, as the import says.
      The two differ: Qwen 3's folder declares 131,072, and vLLM serves 40,960.
    - `truncation_side`: where a text that is too long is cut, `left` or `right`; None: no folder
      says.
    - `output_parser`: how the model writes reasoning and tool calls, as the import says: one of
      `OUTPUT_PARSERS`.
    - `settings`: those of SETTINGS that the folder has, for a folder that is written.

    Raises InvalidSpecError: a malformed name, more than 16 templates, more than 1 MiB in one, more
    than 1,024 variables or tokens, or another length, side, parser or setting.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] | None = None
    stop_tokens: tuple[str, ...] = ()
    control_tokens: tuple[str, ...] = ()
    model_max_length: int | None = None
    max_model_len: int | None = None
    truncation_side: str | None = None
    output_parser: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.sources, Mapping):
            raise InvalidSpecError(
                f"chat templates must be a dict, name -> source, not {type(self.sources).__name__}"
            )
        if len(self.sources) > MAX_TEMPLATES:
            raise InvalidSpecError(
                f"there are {len(self.sources)} chat templates; keep {MAX_TEMPLATES} of them"
            )
        for name, source in self.sources.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidSpecError(
                    f"the name {name!r:.80} of a chat template must have 1 to 64 letters, digits, "
                    f"_, - or ., and begin with a letter, a digit or _"
                )
            _check_text(source, f"the chat template {name!r}")
        if len(self.variables or ()) > _MAX_VARIABLES:
            raise InvalidSpecError(f"chat templates read at most {_MAX_VARIABLES} variables")
        for name, value in (self.variables or {}).items():
            if not isinstance(name, str) or not is_variable_name(name):
                raise InvalidSpecError(f"{name!r:.80} is no name of a variable of chat templates")
            _check_text(value, f"the variable {name}")
        for tokens in (self.stop_tokens, self.control_tokens):
            if len(tokens) > _MAX_TOKENS:
                raise InvalidSpecError(f"at most {_MAX_TOKENS} stop or control tokens are allowed")
            for token in tokens:
                _check_text(token, "a stop or control token")
        for name in ("model_max_length", "max_model_len"):
            length = getattr(self, name)
            is_length = type(length) is int and 0 < length <= MAX_MODEL_LENGTH
            if length is not None and not is_length:
                raise InvalidSpecError(f"{name} must be an integer from 1 to 2^31")
        if self.truncation_side not in (None, *SIDES):
            raise InvalidSpecError("truncation_side must be left or right")
        if self.output_parser not in (None, *OUTPUT_PARSERS):
            known = ", ".join(OUTPUT_PARSERS)
            raise InvalidSpecError(f"no output parser {self.output_parser!r:.40}: one of {known}")
        if not isinstance(self.settings, Mapping):
            raise InvalidSpecError("the settings of a model folder are a dict, name -> value")
        for name, value in self.settings.items():
            if name not in SETTINGS or not SETTINGS[name](value):
                raise InvalidSpecError(
                    f"tokenizer_config.json: {name!r:.60} may not be {value!r:.60}; correct it, or "
                    f"leave it out"
                )
        ordered = dict(sorted(self.sources.items(), key=lambda item: item[0] != DEFAULT))
        object.__setattr__(self, "sources", ordered)
        if self.variables is not None:
            object.__setattr__(self, "variables", dict(self.variables))

    @property
    def turn_ends(self) -> tuple[str, ...]:
        """What is declared to end a turn of the assistant: the stop tokens and `eos_token`."""
        eos = (self.variables or {}).get("eos_token")
        return tuple(dict.fromkeys((*self.stop_tokens, *([eos] if eos else []))))

    def record(self) -> dict[str, Any]:
        """What a manifest says of them: the digest and size in bytes of the file and of each
        source in UTF-8. Empty if the file would say nothing."""
        if self == ChatTemplates():
            return {}
        records = {name: _record(source.encode()) for name, source in self.sources.items()}
        return {**_record(self.to_json()), "templates": records}

    def to_json(self) -> bytes:
        """The content of `chat_templates.json`. Raises InvalidSpecError: it would have more than 32
        MiB."""
        others = {each.name: getattr(self, each.name) for each in fields(self)}
        table = {"templates": others.pop("sources"), **others}
        if not self.settings:
            del table["settings"]
        data = (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode()
        if len(data) > MAX_CHAT_FILE_BYTES:
            raise InvalidSpecError(
                f"{CHAT_FILE} would have {len(data)} bytes; keep fewer chat templates"
            )
        return data

    @classmethod
    def from_json(cls, data: bytes) -> ChatTemplates:
        """Read `chat_templates.json`.

        Raises:
            FormatError: it has other fields, or one has another type.
            InvalidSpecError: as the constructor.
        """
        try:
            table = {"settings": {}, **typed(parse_strict_json(data, CHAT_FILE), dict)}
            read: ChatTemplates = parse_record(cls, {"sources": table.pop("templates"), **table})
        except (KeyError, TypeError) as error:
            raise FormatError(f"{CHAT_FILE} is malformed: {error!r:.120}") from None
        return read


@dataclass(frozen=True)
class ChosenTemplate:
    """The chat template of a conversation; see `choose_template`."""

    name: str
    source: str
    is_own: bool = True
    """Whether it is one of the tokenizer's."""

    @cached_property
    def identity(self) -> dict[str, str]:
        """Its name, and the SHA-256 of its source."""
        return {"name": self.name, "sha256": hashlib.sha256(self.source.encode()).hexdigest()}


def choose_template(
    templates: Mapping[str, str], name: str | ChosenTemplate | None, *, with_tools: bool
) -> ChosenTemplate:
    """The template that renders a conversation, as transformers chooses it; a `name` with braces is
    itself a source. Raises ChatTemplateMissingError: no template has that name."""
    if isinstance(name, ChosenTemplate):
        return name
    if name is None:
        name = "tool_use" if with_tools and "tool_use" in templates else "default"
    if name in templates:
        return ChosenTemplate(name, templates[name])
    if "{" in name:
        return ChosenTemplate("given as source", name, is_own=False)
    known = ", ".join(templates) or "none"
    raise ChatTemplateMissingError(
        f"the tokenizer has no chat template {name!r:.80} (it has: {known}); load the model folder "
        f"that has one, or give it: with_chat_templates in Python, --chat-template FILE for "
        f"tokenizer import and corpus encode"
    )


def knows_tools(templates: Mapping[str, str], name: str | ChosenTemplate | None) -> bool:
    """Whether the template that renders a conversation with tools reads them; raises as
    `choose_template`."""
    return "tools" in choose_template(templates, name, with_tools=True).source


def is_variable_name(name: str) -> bool:
    """Whether a template can read a variable of this name."""
    return _VARIABLE.fullmatch(name) is not None


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise InvalidSpecError(f"{what} is no text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidSpecError(f"{what} has a lone surrogate at {error.start}") from None
    if size > MAX_TEMPLATE_BYTES:
        raise InvalidSpecError(
            f"{what} has {size} bytes, more than the {MAX_TEMPLATE_BYTES} that are allowed"
        )


def _record(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
