"""The tokens of a rendered conversation: which message each is from, and where the loss counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
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
        spans = self.rendered.message_spans(len(self.roles))
        tokens = iter(self._tokens([span for span in spans if span is not None]))
        return [None if span is None else next(tokens) for span in spans]

    def loss_mask(
        self, rule: LossRule = "auto", *, unlearned: Collection[int] = ()
    ) -> NDArray[np.uint8]:
        """1 for each token that the assistant shall learn to write, shape (n_tokens,), uint8.

        `template`: tokens with text between the `generation` tags of the template. `role`: for each
        message of the assistant, the tokens after the text that asks for it (what
        `add_generation_prompt` adds, or the last special token in front of the message), up to and
        including the special token that ends the turn. A message whose text the template leaves out
        has none. `auto`: `template` if the template has such tags, else `role`. The messages whose
        indices are in `unlearned` have none either. Needs `encode_chat(..., with_loss=True)`.

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
        spans = self._generated(unlearned) if by_template else self._turns(unlearned)
        for first, end in self._tokens(spans):
            mask[first:end] = 1
        return mask

    def _generated(self, unlearned: Collection[int]) -> list[tuple[int, int]]:
        """Start and end, in characters, of the text between `generation` tags. Of a span that has
        text of several messages, an unlearned one has what is between its neighbours."""
        messages = self.rendered.message_spans(len(self.roles))
        spans = self.rendered.generated_spans
        for message in (messages[index] for index in unlearned):
            if message is None:
                continue
            before, after = self._between(messages, message)
            spans = [
                part
                for start, end in spans
                for part in (
                    [(start, min(end, before)), (max(start, after), end)]
                    if start < message[1] and message[0] < end
                    else [(start, end)]
                )
                if part[0] < part[1]
            ]
        return spans

    def _between(
        self, messages: Sequence[tuple[int, int] | None], message: tuple[int, int]
    ) -> tuple[int, int]:
        """Where the message in front of this one ends in the text, and where the next begins."""
        others = [other for other in messages if other is not None]
        return (
            max((end for _, end in others if end <= message[0]), default=0),
            min((start for start, _ in others if start >= message[1]), default=len(self.text)),
        )

    def _turns(self, unlearned: Collection[int]) -> list[tuple[int, int]]:
        """Start and end, in characters, of what the assistant writes in each of its messages."""
        text = self.rendered.text
        spans = self.rendered.message_spans(len(self.roles))
        turn_end = _last_special(self.rendered.after_turn, self.special_tokens)
        turns: list[tuple[int, int]] = []
        for index, (role, span) in enumerate(zip(self.roles, spans, strict=True)):
            if role != "assistant" or span is None or index in unlearned:
                continue
            before, after = self._between(spans, span)
            start = _end_of_prompt(text[before : span[0]], self.rendered, self.special_tokens)
            end = text.find(turn_end, span[1], after) if turn_end else -1
            turns.append(
                (
                    before + start if start is not None else span[0],
                    end + len(turn_end) if end >= 0 else span[1],
                )
            )
        return turns

    def _tokens(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """For each span of the text, in characters, the tokens that have bytes of it."""
        bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
        starts, ends = self._in_bytes(bounds).T
        offsets = self.offsets.astype(np.int64)
        first = np.searchsorted(offsets[:, 1], starts, side="right")
        end = np.maximum(first, np.searchsorted(offsets[:, 0], ends, side="left"))
        return list(zip(first.tolist(), end.tolist(), strict=True))

    def _in_bytes(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the text, in characters, as positions in its UTF-8."""
        text = self.rendered.text
        if text.isascii():
            return positions
        marks = np.unique(positions)
        sizes = [len(text[start:end].encode()) for start, end in pairwise([0, *marks.tolist()])]
        found: NDArray[np.int64] = np.cumsum(sizes)[np.searchsorted(marks, positions)]
        return found


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
