"""Bodies of requests with a conversation: ours, and vLLM's for `/inference/v1/generate`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.schemas.chat import ChatEncodeRequest
from tokenizer_core.chat.encoding import ChatEncoding, ChosenTemplate
from tokenizer_core.errors import ChatInputError
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


class EncodedChat(NamedTuple):
    """A conversation, and its ids."""

    encoding: ChatEncoding
    ids: NDArray[np.uint32]
    """With the post-processor's, if they were asked for."""
    n_before: int = 0
    """How many of the post-processor's ids stand in front."""

    @property
    def n_bytes(self) -> int:
        """The size of the rendered text in bytes of UTF-8."""
        return utf8_length(self.encoding.text)

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header that names the template."""
        return template_header(self.encoding.template)

    def rendered(self, chunks: list[bytes]) -> Rendered:
        """The response with this body."""
        return Rendered(chunks, len(self.ids), self.n_bytes, headers=self.headers)


def render_chat_response(
    request: ChatEncodeRequest, chat: EncodedChat, live: LiveTokenizer, form: IdsForm | None
) -> Rendered:
    """The parts of the conversation that `request` wants as JSON, or only the ids in `form`.

    Raises:
        PlacedError: the loss rule does not fit the conversation.
    """
    if form is not None:
        return render_binary(chat.ids, None, chat.n_bytes, form)._replace(headers=chat.headers)
    encoding, returned = chat.encoding, request.returned
    chunks = [b"{"]
    if "ids" in returned:
        chunks += [b'"tokens":', *render_ids(chat.ids), b","]
    chunks.append(b'"count":%d' % len(chat.ids))
    if "text" in returned:
        chunks += [b',"text":', *render_text(encoding.text)]
    if "mask" in returned:
        try:
            turns = encoding.turns(request.loss_rule, turn_ends=request.turn_ends)
        except ChatInputError as error:
            raise PlacedError(error, "/loss_rule") from None
        mask = encoding.mask_of(turns).astype(np.uint32)
        chunks += [b',"mask":', *render_ids(mask)]
        chunks += [b',"turns":', dump([turn._asdict() for turn in turns])]
    if "spans" in returned:
        spans = zip(encoding.roles, encoding.message_tokens(), strict=True)
        chunks += [b',"spans":', dump([{"role": role, "tokens": span} for role, span in spans])]
    template = dump(encoding.template.identity)
    chunks += [b',"chat_template":', template, b',"tokenizer":%b}' % live.identity_json]
    return chat.rendered(chunks)
