"""Responses in the dialects of other servers: pure functions without HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_client.schemas.dialects import (
    NO_MODEL_LENGTH,
    ContentRequest,
    InputsRequest,
    MessagesRequest,
    PromptRequest,
    TokenizerInfoResponse,
)
from tokenizer_client.schemas.tokens import TokenizerIdentity
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.tokenizer_json.model import render_byte_tokens, render_piece
from tokenizer_service.access.limits import check_wanted, reserve_memory
from tokenizer_service.rendering.chat import encode_chat_completion
from tokenizer_service.rendering.decode import (
    check_decoded_size,
    render_texts,
    rows_of,
    special_ids_of,
)
from tokenizer_service.rendering.encode import check_detailed
from tokenizer_service.rendering.json_values import (
    Rendered,
    render_described,
    render_each,
    render_ids,
    utf8_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tokenizer_client.schemas.dialects import (
        DetokenizeRequest,
        IdsRequest,
        PlainTextRequest,
        TokenizeRequest,
    )
    from tokenizer_core.chat.renderer import RenderLimits
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_NAMED_FURTHER: Final = ("sep_token", "cls_token", "mask_token")


def render_tokenize(
    request: TokenizeRequest, live: LiveTokenizer, *, limits: RenderLimits
) -> Rendered:
    """Encode the text of `request` and render the response of its dialect; `limits` are those of
    the chat template for messages.

    Raises:
        Problem: 413 for more tokens than a response may describe beyond their ids; for messages
            as `encode_conversation`.
    """
    if isinstance(request, MessagesRequest):
        return _render_messages(request, live, limits)
    if isinstance(request, PromptRequest):
        return _render_prompt(request, live)
    if isinstance(request, ContentRequest):
        return _render_content(request, live)
    if isinstance(request, InputsRequest):
        return _render_inputs(request, live)
    return _render_plain_text(request, live)


def render_detokenize(
    request: DetokenizeRequest, live: LiveTokenizer, *, max_decoded_bytes: int
) -> Rendered:
    """Decode the ids or the batch of `request` under the keys of all dialects.

    Raises:
        Problem: 422 for an id outside the vocabulary; 413 for more text than `max_decoded_bytes`.
    """
    rows, is_batch = rows_of(request.tokens, "/tokens")
    size = check_decoded_size(rows, live, max_decoded_bytes)

    def render(*, skip: bool) -> list[bytes]:
        return list(render_texts(rows, live, is_batch=is_batch, skip_special_tokens=skip))

    whole = render(skip=bool(request.skip_special_tokens))
    special = special_ids_of(live)
    is_same = request.skip_special_tokens is not None or not any(
        np.isin(ids, special).any() for ids, _ in rows
    )
    if not is_same:
        reserve_memory(size)
    text = whole if is_same else render(skip=True)
    chunks = [b'{"prompt":', *whole, b',"content":', *whole, b',"text":', *text, b"}"]
    return Rendered(chunks, sum(len(ids) for ids, _ in rows))


def render_inference_texts(
    request: IdsRequest, live: LiveTokenizer, *, max_decoded_bytes: int
) -> Rendered:
    """Decode as text-embeddings-inference does: a bare list. Raises as `render_detokenize`."""
    rows, _ = rows_of(request.ids, "/ids")
    check_decoded_size(rows, live, max_decoded_bytes)
    skip = request.skip_special_tokens
    chunks = list(render_texts(rows, live, is_batch=True, skip_special_tokens=skip))
    return Rendered(chunks, sum(len(ids) for ids, _ in rows))


def describe_tokenizer(live: LiveTokenizer) -> TokenizerInfoResponse:
    """The tokenizer as its `tokenizer_config.json` describes it, or would do."""
    spec, named = live.tokenizer.spec, live.tokenizer.template_variables
    special = spec.special_tokens
    begin, end = named.get("bos_token"), spec.eos_token
    declared: dict[str, Any] = {name: named[name] for name in _NAMED_FURTHER if name in named}
    if spec.chat.model_max_length is not None:
        declared["model_max_length"] = spec.chat.model_max_length
    return TokenizerInfoResponse(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=begin,
        eos_token=end,
        pad_token=named.get("pad_token"),
        unk_token=named.get("unk_token"),
        **declared,
        add_bos_token=begin is not None and special.get(begin) in spec.prefix_ids,
        add_eos_token=end is not None and special.get(end) in spec.suffix_ids,
        additional_special_tokens=list(special),
        added_tokens_decoder={
            token.id: token.content
            # Of several names for an id, the first is the one it decodes to.
            for token in reversed(spec.added_tokens)
        },
        clean_up_tokenization_spaces=False,
        chat_template=live.tokenizer.chat_templates.get("default"),
        vocab_size=live.tokenizer.vocab_size,
        tokenizer=TokenizerIdentity(**live.identity),
    )


def _render_prompt(request: PromptRequest, live: LiveTokenizer) -> Rendered:
    is_batch = isinstance(request.prompt, list)
    texts = _texts_of(request.prompt)
    rows = _encode(
        texts, live, request.return_token_strs, add_special_tokens=request.add_special_tokens
    )
    chunks = _vllm_chunks(rows, live, request.return_token_strs, is_batch=is_batch)
    return _rendered(chunks, texts, rows)


def _render_messages(
    request: MessagesRequest, live: LiveTokenizer, limits: RenderLimits
) -> Rendered:
    chat = encode_chat_completion(request, live, limits, request.chat_template_kwargs or {})
    if request.return_token_strs:
        check_detailed(len(chat.ids))
    return chat.rendered(_vllm_chunks([chat.ids], live, request.return_token_strs, is_batch=False))


def _vllm_chunks(
    rows: list[NDArray[np.uint32]], live: LiveTokenizer, with_strings: bool, *, is_batch: bool
) -> list[bytes]:
    strings: Iterator[bytes] = iter([b"null"])
    if with_strings:
        render_string = _token_strings(live)
        strings = render_each(
            (render_described(ids, render_string) for ids in rows), is_batch=is_batch
        )
    return [
        b'{"count":',
        *render_each((iter([b"%d" % len(ids)]) for ids in rows), is_batch=is_batch),
        b',"max_model_len":%d,"tokens":'
        % (live.tokenizer.spec.chat.max_model_len or NO_MODEL_LENGTH),
        *render_each((render_ids(ids, live.tokenizer) for ids in rows), is_batch=is_batch),
        b',"token_strs":',
        *strings,
        b"}",
    ]


def _render_content(request: ContentRequest, live: LiveTokenizer) -> Rendered:
    rows = _encode(
        [request.content],
        live,
        request.with_pieces,
        add_special_tokens=request.add_special,
        allowed_special="all" if request.parse_special else "none",
    )
    vocab = live.tokenizer.spec.vocab
    if request.with_pieces:
        tokens = render_described(rows[0], lambda id_: {"id": id_, "piece": _piece_of(vocab[id_])})
    else:
        tokens = render_ids(rows[0], live.tokenizer)
    return _rendered([b'{"tokens":', *tokens, b"}"], [request.content], rows)


def _render_plain_text(request: PlainTextRequest, live: LiveTokenizer) -> Rendered:
    rows = _encode([request.text], live, True, add_special_tokens=False)
    vocab = live.tokenizer.spec.vocab
    chunks = [
        b'{"tokens":',
        *render_ids(rows[0], live.tokenizer),
        b',"token_strings":',
        *render_described(rows[0], lambda id_: vocab[id_].decode(errors="replace")),
        b"}",
    ]
    return _rendered(chunks, [request.text], rows)


def _render_inputs(request: InputsRequest, live: LiveTokenizer) -> Rendered:
    texts = _texts_of(request.inputs)
    rendered: list[list[bytes]] = []
    n_tokens = 0
    for text in texts:
        check_wanted()
        tokens = _place_tokens(text, live, add_special_tokens=request.add_special_tokens)
        n_tokens += len(tokens)
        check_detailed(n_tokens)
        rendered.append(list(render_described(tokens, _input_token(text.encode(), live))))
    chunks = list(render_each(map(iter, rendered), is_batch=True))
    return Rendered(chunks, n_tokens, sum(map(utf8_length, texts)))


def _place_tokens(text: str, live: LiveTokenizer, *, add_special_tokens: bool) -> NDArray[np.int64]:
    """Id, start and stop of each token in bytes of `text`: shape (n_tokens, 3).

    Start and stop of the post-processor's tokens are -1. A token with a part of a character covers
    the whole character.
    """
    spec = live.tokenizer.spec
    ids, offsets = live.tokenizer.encode_with_offsets(text)
    starts, stops = offsets.astype(np.int64).T
    if not text.isascii():
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        bounds = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
        starts = bounds[np.searchsorted(bounds, starts, side="right") - 1]
        stops = bounds[np.searchsorted(bounds, stops, side="left")]
    placed = np.stack([np.array(ids, dtype=np.int64), starts, stops], axis=1)
    if not add_special_tokens:
        return placed
    before, after = (
        np.array([(id_, -1, -1) for id_ in around], dtype=np.int64).reshape(-1, 3)
        for around in (spec.prefix_ids, spec.suffix_ids)
    )
    return np.concatenate([before, placed, after])


def _input_token(data: bytes, live: LiveTokenizer) -> Callable[[list[int]], dict[str, Any]]:
    """Return a function that describes a row of `_place_tokens` for the text with these bytes."""
    vocab = live.tokenizer.spec.vocab

    def describe(row: list[int]) -> dict[str, Any]:
        id_, start, stop = row
        if start < 0:
            text = vocab[id_].decode(errors="replace")
            return {"id": id_, "text": text, "special": True, "start": None, "stop": None}
        text = data[start:stop].decode()
        return {"id": id_, "text": text, "special": False, "start": start, "stop": stop}

    return describe


def _encode(
    texts: list[str], live: LiveTokenizer, is_detailed: bool, **options: Any
) -> list[NDArray[np.uint32]]:
    """The ids of each text; `is_detailed` if the response describes them."""
    rows = []
    n_tokens = 0
    for text in texts:
        check_wanted()
        rows.append(live.tokenizer.encode_to_numpy(text, **options))
        n_tokens += len(rows[-1])
        if is_detailed:
            check_detailed(n_tokens)
    return rows


def _token_strings(live: LiveTokenizer) -> Callable[[int], str]:
    """Return a function that names a token as `convert_ids_to_tokens` does: added tokens verbatim,
    others as a tokenizer.json spells them."""
    spec = live.tokenizer.spec
    vocab, render = spec.vocab, render_piece if spec.byte_ids else render_token
    known = {token.id: token.content for token in reversed(spec.added_tokens)}
    known |= render_byte_tokens(spec)
    return lambda id_: known.get(id_) or render(vocab[id_])


def _piece_of(token: bytes) -> str | list[int]:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)


def _texts_of(texts: str | list[str]) -> list[str]:
    return texts if isinstance(texts, list) else [texts]


def _rendered(chunks: list[bytes], texts: list[str], rows: list[NDArray[np.uint32]]) -> Rendered:
    return Rendered(chunks, sum(map(len, rows)), sum(map(utf8_length, texts)))
