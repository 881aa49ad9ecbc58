"""Bodies of requests with a conversation: ours, and vLLM's for `/inference/v1/generate`."""

from __future__ import annotations

import numpy as np

from tokenizer_client.schemas.chat import ChatEncodeRequest
from tokenizer_core.chat.loss_mask import ChatEncoding
from tokenizer_core.errors import ChatInputError
from tokenizer_core.spec.chat_templates import ChosenTemplate
from tokenizer_service.http.id_formats import IdsForm
from tokenizer_service.responses.encode import render_binary
from tokenizer_service.responses.errors import PlacedError
from tokenizer_service.responses.json_values import (
    Rendered,
    dump,
    render_ids,
    render_text,
    utf8_length,
)
from tokenizer_service.serving.live_tokenizer import LiveTokenizer


def template_header(template: ChosenTemplate) -> tuple[tuple[bytes, bytes]]:
    """The header that names a template."""
    return ((b"chat-template-digest", template.identity["sha256"].encode()),)


def rendered_for(chat: ChatEncoding, chunks: list[bytes]) -> Rendered:
    """The response about a conversation, with this body."""
    headers = template_header(chat.template)
    return Rendered(chunks, len(chat.ids), utf8_length(chat.text), headers=headers)


def render_chat_response(
    request: ChatEncodeRequest, chat: ChatEncoding, live: LiveTokenizer, form: IdsForm | None
) -> Rendered:
    """The parts of the conversation that `request` wants as JSON, or only the ids in `form`."""
    if form is not None:
        rendered = render_binary(chat.ids, None, utf8_length(chat.text), form)
        return rendered._replace(headers=template_header(chat.template))
    returned = request.returned
    chunks = [b"{"]
    if "ids" in returned:
        chunks += [b'"tokens":', *render_ids(chat.ids), b","]
    chunks.append(b'"count":%d' % len(chat.ids))
    if "text" in returned:
        chunks += [b',"text":', *render_text(chat.text)]
    if "mask" in returned:
        try:
            turns = chat.turns(request.loss_rule, turn_ends=request.turn_ends)
        except ChatInputError as error:
            raise PlacedError(error, "/loss_rule") from None
        mask = chat.mask_of(turns).astype(np.uint32)
        chunks += [b',"mask":', *render_ids(mask)]
        chunks += [b',"turns":', dump([turn._asdict() for turn in turns])]
    if "spans" in returned:
        spans = zip(chat.roles, chat.message_tokens(), strict=True)
        chunks += [b',"spans":', dump([{"role": role, "tokens": span} for role, span in spans])]
    template = dump(chat.template.identity)
    chunks += [b',"chat_template":', template, b',"tokenizer":%b}' % live.identity_json]
    return rendered_for(chat, chunks)
