"""The tokens of a rendered conversation: which message each is from, and where the loss counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
        tokens = iter(self._tokens([span for span in self._spans if span is not None]))
        return [None if span is None else next(tokens) for span in self._spans]

    def loss_mask(
        self, rule: LossRule = "auto", *, unlearned: Collection[int] = ()
    ) -> NDArray[np.uint8]:
        """1 for each token that the assistant shall learn to write, shape (n_tokens,), uint8.

        `template`: tokens with text between the `generation` tags of the template. `role`: for each
        message of the assistant, the tokens after the text that asks for it (what
        `add_generation_prompt` adds, or as much of it as is there, or the last special token in
        front of the message), up to and including the special token that ends the turn: one that
        ends the message in front of the first turn, or the first turn when nothing follows it, or
        else one that begins no message. A message whose text the template leaves out
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
        """Start and end, in characters, of the text between `generation` tags, without unlearned
        messages: of a span with text of several, such a message and the text around it."""
        spans = self.rendered.generated_spans
        for message in (self._spans[index] for index in unlearned):
            if message is None:
                continue
            before, after = self._between(message)
            parts: list[tuple[int, int]] = []
            for start, end in spans:
                if start < message[1] and message[0] < end:
                    parts += [(start, min(end, before)), (max(start, after), end)]
                else:
                    parts.append((start, end))
            spans = [(start, end) for start, end in parts if start < end]
        return spans

    @cached_property
    def _spans(self) -> list[tuple[int, int] | None]:
        return self.rendered.message_spans(len(self.roles))

    @cached_property
    def _borders(self) -> tuple[list[int], list[int]]:
        """Where messages begin and where they end, ascending."""
        spans = [span for span in self._spans if span is not None]
        return sorted(start for start, _ in spans), sorted(end for _, end in spans)

    def _between(self, message: tuple[int, int]) -> tuple[int, int]:
        """Where the message in front of this one ends in the text, and where the next begins."""
        starts, ends = self._borders
        n_before, after = bisect_right(ends, message[0]), bisect_left(starts, message[1])
        return (
            ends[n_before - 1] if n_before else 0,
            starts[after] if after < len(starts) else len(self.text),
        )

    @cached_property
    def _known(self) -> list[str]:
        """The special tokens in the text and around the first turn: a tokenizer may have 65,000."""
        texts = (self.text, self.rendered.before_turn, self.rendered.after_turn)
        return [token for token in self.special_tokens if any(token in text for text in texts)]

    def _turns(self, unlearned: Collection[int]) -> list[tuple[int, int]]:
        """Start and end, in characters, of what the assistant writes in each of its messages."""
        text = self.rendered.text
        turn_ends, openings = self._specials_around()
        turns: list[tuple[int, int]] = []
        for index, (role, span) in enumerate(zip(self.roles, self._spans, strict=True)):
            if role != "assistant" or span is None or index in unlearned:
                continue
            before, after = self._between(span)
            start = _end_of_prompt(text[before : span[0]], self.rendered, self._known)
            behind = _specials(text[span[1] : after], self._known)
            ends = [end for end, token in behind if token in turn_ends]
            ends += [end for end, token in behind[:1] if turn_ends and token not in openings]
            turns.append(
                (
                    before + start if start is not None else span[0],
                    span[1] + ends[0] if ends else span[1],
                )
            )
        return turns

    def _specials_around(self) -> tuple[set[str], set[str]]:
        """The special tokens that end turns, and those that begin messages."""
        ends = set[str]()
        openings = {token for _, token in _specials(self.rendered.before_turn, self._known)}
        after = [token for _, token in _specials(self.rendered.after_turn, self._known)]
        ends.update(after[-1:])
        is_first = True
        for index, span in enumerate(self._spans):
            if span is None:
                continue
            before, _ = self._between(span)
            found = _specials(self.text[before : span[0]], self._known)
            if self.roles[index] != "assistant":
                if not index or self.roles[index - 1] != "assistant":
                    openings.update(token for _, token in found)
            elif is_first:
                is_first = False
                prompt = self.rendered.before_turn
                at = self.text.find(prompt, before, span[0]) if prompt else -1
                # The first token in front of the prompt ends the message before it. If the prompt
                # has all tokens or was not found, the first of several tokens ends that message;
                # in the former case only if the first turn has it behind its text too.
                if at > before:
                    found = [(end, token) for end, token in found if end <= at - before]
                elif len(found) == 1 or (at == before and found[0][1] not in after):
                    found = []
                ends.update(token for _, token in found[:1] if before)
        return ends, openings

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
    prompt = rendered.before_turn
    if prompt and (at := text.rfind(prompt)) >= 0:
        return at + len(prompt)
    found = _specials(text, special_tokens)
    if not found:
        return None
    # Earlier turns may lack the end of the prompt (QwQ's `<think>`).
    opening = _specials(prompt, special_tokens)
    if opening and any(text.endswith(prompt[:n]) for n in range(opening[0][0], len(prompt))):
        return len(text)
    return found[-1][0]


def _specials(text: str, special_tokens: Collection[str]) -> list[tuple[int, str]]:
    """The end of each special token in a text, and the token, in order."""
    found = []
    for token in special_tokens:
        at = text.find(token)
        while at >= 0:
            found.append((at + len(token), token))
            at = text.find(token, at + 1)
    return sorted(found)
