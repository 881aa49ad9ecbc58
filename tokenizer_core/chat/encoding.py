"""The tokens of a rendered conversation: which message each is from, and where the loss counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokenizer_core.errors import ChatInputError, ChatTemplateMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.chat.renderer import RenderedChat

LossRule = Literal["auto", "template", "role"]


@dataclass(frozen=True)
class ChatEncoding:
    """The ids of a conversation: `ids` has shape (n_tokens,), uint32."""

    ids: NDArray[np.uint32]
    rendered: RenderedChat
    roles: Sequence[str]
    """The role of each message."""
    special_tokens: Collection[str] = field(repr=False)
    """The special tokens of the tokenizer."""
    find_offsets: Callable[[], NDArray[np.uint64]] = field(repr=False)

    @cached_property
    def offsets(self) -> NDArray[np.uint64]:
        """Start and end of each token in UTF-8 bytes of the text, shape (n_tokens, 2), uint64."""
        return self.find_offsets()

    @property
    def text(self) -> str:
        """The rendered text."""
        return self.rendered.text

    def message_tokens(self) -> list[tuple[int, int] | None]:
        """For each message the indices of its first token and of the one after its last; None if
        the template uses no text of it. Text that the template writes around it is not included."""
        return [
            None if span is None else self._tokens(*span)
            for span in map(self.rendered.message_span, range(len(self.roles)))
        ]

    def loss_mask(self, rule: LossRule = "auto") -> NDArray[np.uint8]:
        """1 for each token that the assistant shall learn to write, shape (n_tokens,), uint8.

        `template`: tokens with text between the `generation` tags of the template. `role`: for each
        message of the assistant, the tokens after the text that asks for it (what
        `add_generation_prompt` adds, or the last special token in front of the message), up to and
        including the special token that ends the turn. A message whose text the template leaves out
        has none. `auto`: `template` if the template has such tags, else `role`. Needs
        `encode_chat(..., with_loss=True)`.

        Raises:
            ChatInputError: `template`, and the template has no `generation` tags.
        """
        mask = np.zeros(len(self.ids), dtype=np.uint8)
        has_tags = self.rendered.has_generation_tags
        if rule == "template" and not has_tags:
            raise ChatInputError(
                "the chat template has no {% generation %} tags, which say what the assistant "
                "writes; use the loss rule 'role'"
            )
        by_template = rule == "template" or (rule == "auto" and has_tags)
        spans = self.rendered.generated_spans if by_template else self._turns()
        for span in spans:
            first, end = self._tokens(*span)
            mask[first:end] = 1
        return mask

    def _turns(self) -> list[tuple[int, int]]:
        """Start and end, in characters, of what the assistant writes in each of its messages."""
        text = self.rendered.text
        spans = [self.rendered.message_span(index) for index in range(len(self.roles))]
        turn_end = _last_special(self.rendered.after_turn, self.special_tokens)
        turns: list[tuple[int, int]] = []
        for index, (role, span) in enumerate(zip(self.roles, spans, strict=True)):
            if role != "assistant" or span is None:
                continue
            before = max((other[1] for other in spans[:index] if other is not None), default=0)
            after = min(
                (other[0] for other in spans[index + 1 :] if other is not None), default=len(text)
            )
            start = _end_of_prompt(text[before : span[0]], self.rendered, self.special_tokens)
            end = text.find(turn_end, span[1], after) if turn_end else -1
            turns.append(
                (
                    before + start if start is not None else span[0],
                    end + len(turn_end) if end >= 0 else span[1],
                )
            )
        return turns

    def _tokens(self, start: int, end: int) -> tuple[int, int]:
        """The tokens that have bytes of `text[start:end]`."""
        first_byte, end_byte = self._byte_positions[[start, end]]
        first = int(np.searchsorted(self.offsets[:, 1], first_byte, side="right"))
        return first, max(first, int(np.searchsorted(self.offsets[:, 0], end_byte, side="left")))

    @cached_property
    def _byte_positions(self) -> NDArray[np.uint64]:
        """Where each character begins in UTF-8, and where the text ends: shape (n_chars + 1,)."""
        codes = np.frombuffer(self.rendered.text.encode("utf-32-le"), dtype=np.uint32)
        positions = np.zeros(len(codes) + 1, dtype=np.uint64)
        np.cumsum(1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000), out=positions[1:])
        return positions


def choose_template(templates: Mapping[str, str], name: str | None, *, with_tools: bool) -> str:
    """The source of a template, as transformers chooses it; a `name` with braces is a source.

    Raises:
        ChatTemplateMissingError: there is none of that name.
    """
    if name is None:
        name = "tool_use" if with_tools and "tool_use" in templates else "default"
    if name in templates:
        return templates[name]
    if "{" in name:
        return name
    known = ", ".join(templates) or "none"
    raise ChatTemplateMissingError(
        f"the tokenizer has no chat template {name!r:.80} (it has: {known}); load the model folder "
        f"that has one, or add it: with_chat_templates in Python, --chat-template FILE for "
        f"tokenizer import"
    )


def roles_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The role of each message, empty if it has none."""
    roles = [message.get("role") for message in messages]
    return [role if isinstance(role, str) else "" for role in roles]


def _end_of_prompt(
    text: str, rendered: RenderedChat, special_tokens: Collection[str]
) -> int | None:
    """Where the text between two messages stops asking for a turn, as an index into it."""
    if rendered.before_turn and (at := text.rfind(rendered.before_turn)) >= 0:
        return at + len(rendered.before_turn)
    last = _last_special(text, special_tokens)
    return text.rindex(last) + len(last) if last else None


def _last_special(text: str, special_tokens: Collection[str]) -> str:
    found = [(text.rfind(token) + len(token), token) for token in special_tokens if token in text]
    return max(found, default=(0, ""))[1]
