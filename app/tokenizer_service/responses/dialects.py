"""Bodies in the dialects of other servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tokenizer_client.schemas.dialects import (
    NO_MODEL_LENGTH,
    PropsModalities,
    PropsResponse,
    PropsSettings,
    TokenizerInfoResponse,
)
from tokenizer_client.schemas.tokens import TokenizerIdentity
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.tokenizer_json.model import render_byte_tokens, render_piece
from tokenizer_core.spec.document_end import find_eos_token
from tokenizer_service.responses.encode import Encoded, render_counts
from tokenizer_service.responses.json_values import (
    Rendered,
    render_described,
    render_each,
    render_ids,
)
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_NAMED_FURTHER: Final = ("sep_token", "cls_token", "mask_token")


def describe_tokenizer(live: LiveTokenizer) -> TokenizerInfoResponse:
    """The tokenizer as its `tokenizer_config.json` describes it, or would do."""
    spec, named = live.tokenizer.spec, live.tokenizer.template_variables
    special = spec.special_tokens
    begin, end = named.get("bos_token"), find_eos_token(spec)
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


def describe_props(live: LiveTokenizer, n_slots: int, build: str) -> PropsResponse:
    """The tokenizer as llama.cpp's server describes its model."""
    spec, named = live.tokenizer.spec, live.tokenizer.template_variables
    return PropsResponse(
        default_generation_settings=PropsSettings(n_ctx=spec.chat.max_model_len or 0, params={}),
        total_slots=n_slots,
        model_alias=live.ref.name,
        model_path=str(live.ref),
        chat_template=live.tokenizer.chat_templates.get("default", ""),
        bos_token=named.get("bos_token", ""),
        eos_token=find_eos_token(spec) or "",
        modalities=PropsModalities(vision=False, audio=False),
        build_info=build,
        is_sleeping=False,
    )


def render_prompts(
    texts: list[Encoded], live: LiveTokenizer, with_strings: bool | None, *, is_batch: bool
) -> Rendered:
    """As vLLM; as SGLang if `with_strings` is None."""
    strings: Iterator[bytes] = iter([b"null"])
    if with_strings:
        render_string = _token_strings(live)
        strings = render_each(
            (render_described(text.ids, render_string) for text in texts), is_batch=is_batch
        )
    chunks = [
        b'{"count":',
        *render_counts(texts, is_batch=is_batch),
        b',"max_model_len":%d,"tokens":'
        % (live.tokenizer.spec.chat.max_model_len or NO_MODEL_LENGTH),
        *render_each((render_ids(text.ids) for text in texts), is_batch=is_batch),
    ]
    if with_strings is not None:
        chunks += [b',"token_strs":', *strings]
    chunks.append(b"}")
    return _rendered(chunks, texts)


def render_content(text: Encoded, live: LiveTokenizer, *, with_pieces: bool) -> Rendered:
    """As llama.cpp."""
    vocab = live.tokenizer.spec.vocab
    tokens = render_ids(text.ids)
    if with_pieces:
        tokens = render_described(text.ids, lambda id_: {"id": id_, "piece": _piece_of(vocab[id_])})
    return _rendered([b'{"tokens":', *tokens, b"}"], [text])


def render_plain_text(text: Encoded, live: LiveTokenizer) -> Rendered:
    """As Cohere."""
    vocab = live.tokenizer.spec.vocab
    strings = render_described(text.ids, lambda id_: vocab[id_].decode(errors="replace"))
    ids = render_ids(text.ids)
    return _rendered([b'{"tokens":', *ids, b',"token_strings":', *strings, b"}"], [text])


def render_inputs(inputs: list[str], texts: list[Encoded], live: LiveTokenizer) -> Rendered:
    """As text-embeddings-inference; offsets are in bytes of whole characters, or -1."""
    lists = (
        render_described(
            np.column_stack([text.ids.astype(np.int64), text.offsets]),
            _input_token(given.encode(), live),
        )
        for given, text in zip(inputs, texts, strict=True)
    )
    return _rendered(list(render_each(lists, is_batch=True)), texts)


def _input_token(data: bytes, live: LiveTokenizer) -> Callable[[list[int]], dict[str, Any]]:
    """Return a function that describes a token: its id, start and stop in `data`, its text."""
    vocab = live.tokenizer.spec.vocab

    def describe(row: list[int]) -> dict[str, Any]:
        id_, start, stop = row
        if start < 0:
            text = vocab[id_].decode(errors="replace")
            return {"id": id_, "text": text, "special": True, "start": None, "stop": None}
        text = data[start:stop].decode()
        return {"id": id_, "text": text, "special": False, "start": start, "stop": stop}

    return describe


def _token_strings(live: LiveTokenizer) -> Callable[[int], str]:
    """Return a function that names a token as `convert_ids_to_tokens` does: added tokens verbatim,
    others as a tokenizer.json spells them."""
    spec = live.tokenizer.spec
    vocab, render = spec.vocab, render_piece if spec.alphabet.has_characters else render_token
    known = {token.id: token.content for token in reversed(spec.added_tokens)}
    known |= render_byte_tokens(spec)
    return lambda id_: known.get(id_) or render(vocab[id_])


def _piece_of(token: bytes) -> str | list[int]:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)


def _rendered(chunks: list[bytes], texts: list[Encoded]) -> Rendered:
    n_tokens = sum(len(text.ids) for text in texts)
    return Rendered(chunks, n_tokens, sum(text.n_bytes for text in texts))
