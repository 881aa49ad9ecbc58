"""The tokens of a rendered conversation: which message each is from, and where the loss counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from tokenizer_core.errors import ChatInputError, TurnEndError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.chat.renderer import RenderedChat, TurnBorders, TurnProblem
    from tokenizer_core.spec import AddedToken
    from tokenizer_core.spec.chat_templates import ChosenTemplate

LossRule = Literal["auto", "template", "role"]

_ANCHOR: Final = 16
"""So many characters at the end of a message show where the text after it begins."""


class Turn(NamedTuple):
    """A turn of the assistant: its message (None between `generation` tags), the first token to
    learn and the one after the last (None: not learned), and what is wrong with it."""

    message: int | None
    tokens: tuple[int, int] | None
    problem: TurnProblem | None


@dataclass(frozen=True)
class ChatEncoding:
    """The ids of a conversation: `ids` has shape (n_tokens,), uint32."""

    ids: NDArray[np.uint32]
    rendered: RenderedChat
    added_tokens: Sequence[AddedToken] = field(repr=False)
    """Those of the tokenizer."""
    find_offsets: Callable[[], NDArray[np.uint64]] = field(repr=False)
    template: ChosenTemplate
    declared_turn_ends: Collection[str] = ()
    """`ChatTemplates.turn_ends` of the tokenizer."""

    @cached_property
    def offsets(self) -> NDArray[np.uint64]:
        """Start and end of each token in UTF-8 bytes of the text, shape (n_tokens, 2), uint64."""
        return self.find_offsets()

    @property
    def text(self) -> str:
        """The rendered text."""
        return self.rendered.text

    @property
    def roles(self) -> list[str]:
        """The role of each message, empty if it has none."""
        roles = [message.get("role") for message in self.rendered.messages]
        return [role if isinstance(role, str) else "" for role in roles]

    def message_tokens(self) -> list[tuple[int, int] | None]:
        """For each message the indices of its first token and of the one after its last; None if
        the template uses no text of it. Text that the template writes around it is not included."""
        tokens = iter(self._tokens([span for span in self._spans if span is not None]))
        return [None if span is None else next(tokens) for span in self._spans]

    def loss_mask(
        self,
        rule: LossRule = "auto",
        *,
        unlearned: Collection[int] = (),
        turn_ends: Collection[str] = (),
    ) -> NDArray[np.uint8]:
        """1 for each token that the assistant shall learn to write, shape (n_tokens,), uint8: those
        of `turns`; arguments and errors are the same."""
        return self.mask_of(self.turns(rule, unlearned=unlearned, turn_ends=turn_ends))

    def mask_of(self, turns: Sequence[Turn]) -> NDArray[np.uint8]:
        """1 for each token of the turns, shape (n_tokens,), uint8."""
        mask = np.zeros(len(self.ids), dtype=np.uint8)
        for turn in turns:
            if turn.tokens is not None:
                mask[turn.tokens[0] : turn.tokens[1]] = 1
        return mask

    def turns(
        self,
        rule: LossRule = "auto",
        *,
        unlearned: Collection[int] = (),
        turn_ends: Collection[str] = (),
    ) -> list[Turn]:
        """What the assistant shall learn to write, in the order of the text.

        `template`: text between the `generation` tags of the template. `role`: for each message of
        the assistant that the template writes, what follows the text that asks for it, or as much
        of that text as is there, up to and including the special token that ends the turn. A token
        is learned if any character of it is after that border. The end is the first token that is
        declared (here as `turn_ends`, or by the model folder) or else the last special
        token of the text that the template writes after the turn in any case. A token that the
        template writes only because of what follows (the next role's) must be declared. `auto`:
        `template` if the template has such tags, else `role`. The messages whose indices are in
        `unlearned` are left out.

        Raises:
            ValueError: `role` needs `encode_chat(..., with_loss=True)`.
            ChatInputError: `template`, and the template has no `generation` tags; `turn_ends` names
                no added token; the template says for no turn where it begins.
            TurnEndError: a turn ends with a token that is not declared.
        """
        unknown = set(turn_ends) - {token.content for token in self.added_tokens}
        if unknown:
            raise ChatInputError(
                f"{min(unknown)!r:.80} is no added token of the tokenizer, so it cannot end a turn"
            )
        has_tags = self.rendered.has_generation_tags
        check_rule(rule, has_tags=has_tags)
        if rule == "template" or (rule == "auto" and has_tags):
            return self._tagged_turns(unlearned, {*turn_ends, *self.declared_turn_ends})
        return self._asked_turns(unlearned, {*turn_ends, *self.declared_turn_ends})

    def end_of(
        self, earlier: RenderedChat, ids: Sequence[int], decode: Callable[[Sequence[int]], str]
    ) -> int:
        """Where the text begins, in characters, that continues `ids` of the `earlier` messages of
        this conversation.

        The template writes a text after the last of them. What of it is in `ids` already is found
        by their last added token: that of the template, or one that ends turns. Raises
        ChatInputError: as `Tokenizer.extend_chat`.
        """
        n_earlier = len(earlier.messages)
        if list(self.rendered.messages[:n_earlier]) != list(earlier.messages):
            raise ChatInputError(
                "the new messages change the earlier ones (system messages are joined in front, "
                "for example), so their ids cannot stay; begin a new conversation"
            )
        start = max((span[1] for span in self._spans[:n_earlier] if span), default=0)
        later = min((span[0] for span in self._spans[n_earlier:] if span), default=len(self.text))
        if later < start:
            raise ChatInputError(
                "the chat template writes a new message before the end of the earlier ones",
                n_earlier,
            )
        known = max((span[1] for span in earlier.message_spans() if span), default=0)
        # Up to `shared` the template writes the same whether or not messages follow.
        pairs = zip(earlier.text[known:], self.text[start:later], strict=False)
        shared = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        ((first, stop), (_, limit)) = self._tokens([(start, shared), (start, later)])
        ends = [index for index in range(first, stop) if self._is_control(index)]
        ends = [index for index in ends if self._characters(self._end_of_token(index)) <= shared]
        has_text = self._spans[n_earlier - 1] is not None
        for index in reversed(ends if has_text else ends[-1:]):
            end = self._characters(self._end_of_token(index))
            rest = self.text[end:shared]
            for n_after in range(min(len(ids), len(rest.encode()) + 1)):
                if ids[-1 - n_after] == self.ids[index]:
                    written = decode(ids[len(ids) - n_after :])
                    if rest.startswith(written):
                        return end + len(written)
                    break
        last = self._added.get(ids[-1])
        control = next(filter(self._is_control, range(first, limit)), limit)
        if has_text and not ends and last is not None and control < limit:
            # The token of the next role ends the turn (GLM 4.5), or the template writes another
            # token where nothing follows (gpt-oss).
            is_replaced = earlier.text[known:].rstrip().endswith(last.content)
            if is_replaced or self.ids[control] == ids[-1]:
                return self._characters(self._end_of_token(control))
        if ends and last is not None and last.content in self.declared_turn_ends:
            return self._characters(self._end_of_token(ends[-1]))
        if not has_text:
            raise ChatInputError(
                "the template writes no text of the last earlier message, so that its end is not "
                "found; end the ids with the token that ends its turn",
                n_earlier - 1,
            )
        # Plain text that the template writes after the message may be there in part.
        if control < limit:
            shared = min(shared, self._characters(int(self.offsets[control][0])))
        message = self.text[max(0, start - _ANCHOR) : start]
        written = decode(ids[-len((message + self.text[start:shared]).encode()) - 1 :])
        ends_with = (
            at for at in range(shared, start, -1) if written.endswith(message + self.text[start:at])
        )
        return next(ends_with, start)

    def _is_control(self, index: int) -> bool:
        token = self._added.get(int(self.ids[index]))
        return token is not None and bool(token.content.strip())

    def _characters(self, position: int) -> int:
        """A position in the UTF-8 of the text as one in its characters."""
        return len(self._data[:position].decode())

    def _tagged_turns(self, unlearned: Collection[int], stops: Collection[str]) -> list[Turn]:
        spans = self._generated(unlearned)
        turns = []
        for (start, end), (first, stop) in zip(spans, self._tokens(spans), strict=True):
            n_spaces = end - start - len(self.text[start:end].rstrip())
            ((_, last),) = self._tokens([(start, end - n_spaces)])
            token = self._added.get(int(self.ids[last - 1])) if first < last else None
            has_end = token is not None and (token.special or token.content in stops)
            turns.append(Turn(None, (first, stop), None if has_end else "outside_tags"))
        return turns

    def _asked_turns(self, unlearned: Collection[int], stops: Collection[str]) -> list[Turn]:
        if self.rendered.turns is None:
            raise ValueError("the turns of a conversation need encode_chat(..., with_loss=True)")
        asked = [turn for turn in self.rendered.turns if turn.message not in unlearned]
        found = [self._learned(turn, stops) for turn in asked]
        if asked and all(turn.problem in ("unanswered", "no_prompt") for turn in found):
            why = "refuses the messages in front of it"
            if not any(turn.problem == "unanswered" for turn in asked):
                why = "ignores add_generation_prompt, or writes other text in front of the turn"
            raise ChatInputError(
                f"the chat template ({self.template.name}) does not say where a turn of the "
                f"assistant begins: it {why}; name a template that writes what asks for a turn, or "
                f"one with {{% generation %}} tags (--chat-template FILE, chat_template)",
                asked[0].message,
            )
        found += [
            Turn(index, None, "no_text")
            for index, (role, span) in enumerate(zip(self.roles, self._spans, strict=True))
            if role == "assistant" and span is None and index not in unlearned
        ]
        return sorted(found, key=lambda turn: turn.message or 0)

    def _learned(self, turn: TurnBorders, stops: Collection[str]) -> Turn:
        if turn.problem is not None:
            return Turn(turn.message, None, turn.problem)
        asked, (first, end), (begin, limit) = self._tokens(
            [
                (turn.prompt, turn.start),
                (turn.start, max(turn.start, turn.text_end)),
                (turn.text_end, turn.limit),
            ]
        )
        prompt, start = self._in_bytes(np.array([turn.prompt, turn.start])).tolist()
        if first < end and self._end_of_token(first) <= start:
            first += 1
        in_prompt = range(*asked)
        if turn.prompt < turn.start and not any(
            prompt < self._end_of_token(index) <= start for index in in_prompt
        ):
            return Turn(turn.message, None, "no_prompt")  # `<|` of another token is no beginning
        added = [self._added.get(id_) for id_ in self.ids[begin:limit].tolist()]
        controls = [
            (index, token.content)
            for index, token in enumerate(added, begin)
            if token is not None and (token.special or token.content in stops)
        ]
        own_end, whole_end = self._in_bytes(np.array([turn.own_end, turn.whole_end])).tolist()
        # A token of the text that asks for a turn begins the next one.
        header = set(self.ids[slice(*asked)].tolist())
        ends = list(takewhile(lambda control: int(self.ids[control[0]]) not in header, controls))
        for border in (own_end, whole_end):
            within = [control for control in controls if self._end_of_token(control[0]) <= border]
            declared = [control for control in within if control[1] in stops]
            if turn.prompt == turn.start and len(within) > 1 and not declared:
                break  # nothing asks for turns, so the last of them may begin the next one
            # Command A writes a header even where nothing follows; it looks like a part of the end.
            is_cut = border == own_end and turn.whole_end <= turn.text_end and not turn.is_last
            possible = [control for control in within if control in ends]
            if is_cut and len(possible) > 1 and not declared:
                raise self._no_end(turn, possible)
            for index, _ in declared[:1] or possible[-1:]:
                return Turn(turn.message, (first, index + 1), None)
        if controls:
            index, token = controls[0]
            if token in stops or self._ends_messages(token):
                return Turn(turn.message, (first, index + 1), None)
            raise self._no_end(turn, controls)
        # Text of the template without a special token, such as `</tool_call>`.
        behind = self.text[turn.text_end : turn.own_end].rstrip()
        if behind and turn.own_end == turn.whole_end:
            ((_, end),) = self._tokens([(turn.start, turn.text_end + len(behind))])
        is_nothing = turn.is_last and not self.text[turn.own_end : turn.limit].strip()
        problem: TurnProblem = "end_of_conversation" if is_nothing else "no_special_token"
        return Turn(turn.message, (first, end), problem)

    def _no_end(self, turn: TurnBorders, controls: Sequence[tuple[int, str]]) -> TurnEndError:
        names = list(dict.fromkeys(f"{name!r:.80}" for _, name in controls))
        return TurnEndError(
            f"the chat template ({self.template.name}) writes {', '.join(names[:4])} after messages"
            f"[{turn.message}], and what begins the next turn is among it: nothing declares what "
            f"the assistant writes to end its turn. Declare it (--turn-end "
            f"{names[0] if len(names) == 1 else 'TOKEN'}, turn_ends), import the model's folder "
            f"with its generation_config.json, or name a template that ends turns "
            f"(--chat-template FILE, chat_template)",
            turn.message,
        )

    def _end_of_token(self, index: int) -> int:
        """Where a token ends, in bytes; an added token without white space that it includes."""
        start, end = map(int, self.offsets[index])
        if int(self.ids[index]) not in self._added:
            return end
        return start + len(self._data[start:end].rstrip())

    @cached_property
    def _data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _added(self) -> dict[int, AddedToken]:
        return {token.id: token for token in self.added_tokens}

    def _ends_messages(self, token: str) -> bool:
        """Whether the template ends messages with a token, where nothing follows."""
        rendered = self.rendered
        return any(token in end for end in rendered.message_ends) and not any(
            token in prompt for prompt in rendered.prompts
        )

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
        return self.rendered.message_spans()

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


def check_rule(rule: LossRule, *, has_tags: bool) -> None:
    """Raise ChatInputError for `template`, if the template has no `generation` tags."""
    if rule == "template" and not has_tags:
        raise ChatInputError(
            "the chat template has no {% generation %} tags, which say what the assistant writes; "
            "use the loss rule 'role'"
        )
