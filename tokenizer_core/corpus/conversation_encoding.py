"""ConversationEncoder: conversations to ids by a chat template, and where the loss counts."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.chat.loss_mask import check_rule
from tokenizer_core.chat.messages import left_out
from tokenizer_core.chat.renderer import has_generation_tags
from tokenizer_core.corpus.batch_encoding import EncodedConversation
from tokenizer_core.documents.conversations import Conversation, parse_conversation
from tokenizer_core.errors import (
    ChatError,
    ChatInputError,
    ChatLimitError,
    ChatTemplateError,
    ConversationError,
)
from tokenizer_core.spec.chat_templates import choose_template, knows_tools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokenizer_core.chat.loss_mask import ChatEncoding, LossRule
    from tokenizer_core.chat.messages import MessagesForm
    from tokenizer_core.tokenizer import Tokenizer

_CONTROL_TOKEN: Final = re.compile(r"<\|[^<>|\s]{1,40}\|>")
_PROBE: Final = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
)
"""Shows before any file is read whether the template says where turns begin and end."""


class ConversationEncoder:
    """The `document_encoder` of `encode_corpus` for files of conversations
    (`CorpusFormat(field=None)`).

    `loss` says where the loss counts, as `ChatEncoding.loss_mask`: between the `generation` tags of
    the template, in the turns of the role assistant, or `auto`: the first if the template has tags.
    `turn_ends`: added tokens that end a turn, besides those that the model folder declares.
    `chat_template` is the name of one of the tokenizer's, or a Jinja source; `messages_form` that
    of `encode_chat`. A conversation that cannot be encoded, or that has nothing to learn, is a bad
    document (`encode_corpus`).

    The manifest counts the messages with a content or calls of which the template writes nothing
    (`messages_left_out`), those with such reasoning (`reasoning_left_out`), the conversations with
    tools if it knows none (`tools_left_out`), and the turns that are learned with their end
    (`turns_with_end`), without it or not at all, by reason (`turns_` and `weight_0` or a
    `chat.renderer.TurnProblem`). `warnings` are sentences about the template.

    Raises:
        ChatTemplateMissingError: the tokenizer has no such template.
        ChatInputError: `messages_form` is `vllm`; `loss` is `template`, and the template has no
            `generation` tags; `turn_ends` names no added token; the template does not say where
            turns begin.
        TurnEndError: the template ends turns with a token that is not declared.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        loss: LossRule = "auto",
        chat_template: str | None = None,
        messages_form: MessagesForm = "decoded",
        turn_ends: Sequence[str] = (),
    ) -> None:
        if messages_form == "vllm":
            raise ChatInputError(
                "messages_form 'vllm' joins messages, so their weights would belong to others; "
                "name 'decoded' or 'raw'"
            )
        template = choose_template(tokenizer.chat_templates, chat_template, with_tools=False)
        check_rule(loss, has_tags=has_generation_tags(template.source))
        self._loss, self._template = loss, chat_template
        self._form: MessagesForm = messages_form
        self._turn_ends = tuple(turn_ends)
        self.settings: Mapping[str, Any] = {
            **_settings(tokenizer, chat_template, loss),
            "messages_form": messages_form,
            "turn_ends": list(dict.fromkeys([*turn_ends, *tokenizer.spec.chat.turn_ends])),
        }
        self.warnings = _warnings(tokenizer, chat_template)
        try:
            encoded = tokenizer.encode_chat(
                _PROBE, chat_template=chat_template, messages_form=messages_form, with_loss=True
            )
        except ChatError:  # other messages may suit the template
            return
        encoded.turns(loss, turn_ends=self._turn_ends)

    def encode(
        self, tokenizer: Tokenizer, documents: Sequence[bytes]
    ) -> Iterator[EncodedConversation | ConversationError]:
        for document in documents:
            try:
                yield self._encode(tokenizer, parse_conversation(document))
            except ConversationError as error:
                yield error

    def _encode(self, tokenizer: Tokenizer, conversation: Conversation) -> EncodedConversation:
        try:
            encoded = tokenizer.encode_chat(
                conversation.messages,
                tools=conversation.tools,
                documents=conversation.documents,
                chat_template=self._template,
                template_kwargs=conversation.template_kwargs,
                messages_form=self._form,
                with_loss=True,
            )
            turns = encoded.turns(
                self._loss, unlearned=conversation.unlearned, turn_ends=self._turn_ends
            )
        except (ChatInputError, ChatTemplateError, ChatLimitError) as error:
            raise ConversationError(str(error), error.code) from error
        _check_unlearned(encoded, conversation)
        mask = encoded.mask_of(turns)
        n_unlearned = sum(
            conversation.messages[index].get("role") == "assistant"
            for index in conversation.unlearned
        )
        if not mask.any():
            which = " and whose weight is not 0" if n_unlearned else ""
            raise ConversationError(
                f"nothing of the conversation is to be learned: it has no turn of the assistant "
                f"that the template writes{which}; add one, or leave the conversation out",
                "nothing_to_learn",
            )
        counts = Counter(f"turns_{turn.problem or 'with_end'}" for turn in turns)
        missing = left_out(encoded.rendered)
        counts["messages_left_out"] = len({index for index, name in missing if name != "reasoning"})
        counts["turns_weight_0"] = n_unlearned
        has_them = knows_tools(tokenizer.chat_templates, self._template)
        counts["tools_left_out"] = int(bool(conversation.tools) and not has_them)
        counts["reasoning_left_out"] = sum(name == "reasoning" for _, name in missing)
        return EncodedConversation(encoded.ids, mask, +counts)


def _settings(tokenizer: Tokenizer, chat_template: str | None, loss: LossRule) -> dict[str, Any]:
    """What the manifest says: the sha256 of each template that may render a conversation (a source
    has no name), and of the variables; the loss rule, with `auto` resolved unless it depends on the
    conversation."""
    known = tokenizer.chat_templates
    sources = [
        choose_template(known, chat_template, with_tools=with_tools).source
        for with_tools in (False, True)
    ]
    names = {known[name]: name for name in reversed(list(known))}
    with_tags = {has_generation_tags(source) for source in sources}
    if loss == "auto" and len(with_tags) == 1:
        loss = "template" if with_tags.pop() else "role"
    variables = json.dumps(dict(tokenizer.template_variables), sort_keys=True)
    return {
        "chat_templates": [
            {"name": names.get(source), "sha256": _sha256(source)}
            for source in dict.fromkeys(sources)
        ],
        "template_variables": _sha256(variables),
        "loss": loss,
    }


def _warnings(tokenizer: Tokenizer, chat_template: str | None) -> list[str]:
    known = tokenizer.chat_templates
    written = known.values() if chat_template is None else [known.get(chat_template, chat_template)]
    names = set(_CONTROL_TOKEN.findall(" ".join(written)))
    unknown = sorted(names - tokenizer.spec.added_ids.keys())
    if not unknown:
        return []
    return [
        f"the chat template writes {', '.join(unknown)}, no token of this tokenizer: such text in "
        f"a message gives the same ids; train with it (--special-token, special_tokens)"
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_unlearned(encoded: ChatEncoding, conversation: Conversation) -> None:
    """Refuse a weight of 0 of a message that the template leaves out."""
    if not conversation.unlearned:
        return
    spans = encoded.message_tokens()
    missing = [index for index in sorted(conversation.unlearned) if spans[index] is None]
    if missing:
        raise ConversationError(
            f"messages[{missing[0]}] has weight 0, and the template writes no text of it; leave "
            f"the message or the weight out"
        )
