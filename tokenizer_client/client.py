# Made from async_client.py by tests/tokenizer_client/make_client.py.
"""Client: every call of the service as a blocking method.

A method passes its `locals()`: the fields of a request have the names of its parameters.
"""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import os
import ssl
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, cast

import httpx
import numpy as np
from numpy.typing import NDArray

from tokenizer_client.address import ServiceAddress
from tokenizer_client.arguments import (
    AddedTokens,
    AllowedSpecial,
    CorpusOrId,
    DisallowedSpecial,
    Errors,
    JobLimits,
    JobOrId,
    Messages,
    TokenFilesOrId,
    TokenizerOrName,
    chat_fields,
    derender_fields,
    fields_of,
    id_of,
    kept_fields,
    message_list,
    name_of,
    plain_ids,
    query_of,
    render_item,
    require_ids,
    require_rows,
    require_text,
    require_texts,
    segment_fields,
    version_of,
    with_variables,
)
from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    JobFailedError,
    ProblemError,
    UnavailableError,
    UnexpectedResponseError,
)
from tokenizer_client.exchange import Sender
from tokenizer_client.local_files import (
    Given,
    PartialFile,
    Progress,
    Source,
    is_whole,
    render_text,
)
from tokenizer_client.retries import Attempts, Deadline, RetryPolicy, Session
from tokenizer_client.schemas.chat import ChatEncodeResponse, LossRule, MessagesForm
from tokenizer_client.schemas.derender import DerenderedChunk, DerenderedResponse, StreamState
from tokenizer_client.schemas.extend import (
    ExtendBatchResponse,
    ExtendChatRequest,
    ExtendRequest,
    ExtendResponse,
)
from tokenizer_client.schemas.jobs import (
    FILE_FORMATS,
    AnyJobList,
    AnyJobView,
    Corpus,
    CorpusList,
    EncodeJobView,
    FileFormat,
    JobView,
    Promote,
    TrainRequest,
)
from tokenizer_client.schemas.text import (
    AlignRequest,
    AlignResponse,
    Chunk,
    ChunkRequest,
    ChunkResponse,
    CountRequest,
    CountResponse,
    TruncateRequest,
    TruncateResponse,
    VerifyRequest,
    VerifyResponse,
    VocabResponse,
)
from tokenizer_client.schemas.token_files import (
    EncodeCorpusRequest,
    OverLength,
    TokenFile,
    TokenFilesList,
    TokenFilesView,
)
from tokenizer_client.schemas.tokens import (
    ActiveTokenizer,
    DecodeResponse,
    EncodeRequest,
    EncodeResponse,
    ImportedTokenizer,
    InfoResponse,
    ModelResponse,
    ModelsResponse,
    PromoteResponse,
    TokenizersResponse,
    TokenizerSummary,
)
from tokenizer_client.transport import DuplexTransport
from tokenizer_client.wire import (
    BATCH,
    DTYPES,
    IDS,
    JSON,
    OCTETS,
    EventReader,
    FrameReader,
    IdArray,
    Ids,
    Request,
    Width,
    check_most_tokens,
    form_of,
    parse_batch,
    parse_id_bytes,
    parse_json,
    path_of,
    render_batch,
    render_ids,
    require_media_type,
    require_one,
    require_same,
    to_list,
)

Versions: TypeAlias = list[TokenizerSummary]
"""In the resources, `list` is a method."""

_DERENDER: Final = "/v1/chat/completions/derender"
_MANIFEST: Final = "manifest.json"
_MEDIA_TYPES: Final = {"json": JSON, "txt": "text/plain", "tiktoken": "text/plain"}
"""Suffix of a file of a tokenizer -> its media type; the others are bytes."""
_TEXT: Final = "text/plain; charset=utf-8"
_UNFINISHED: Final = ("queued", "running")
_WRITE_BYTES: Final = 1 << 20


class Client:
    """The service, blocking; any number of threads may share one client.

    `base_url` defaults to TOKENIZER_URL, then http://127.0.0.1:8000; `unix:/path` names a Unix
    socket. `api_key` defaults to TOKENIZER_API_KEY. `timeout` bounds each wait for the service, in
    seconds; `deadline_seconds` (None for none) a whole call with its retries, except streams,
    transfers and waiting for jobs. `max_retries` (5) is the number of further attempts; `retries`
    also sets their waits. `verify` sets how https verifies certificates.

    `http_client` is an httpx client with proxies, certificates or hooks of yours, which you close;
    streams and uploads do not use it, because httpx cannot read while it sends. Leave it out with a
    `unix:` address. Tests pass a `transport` instead of the network.
    Use the client in a `with`, or close it.

    Raises:
        ValueError: the address, the key or an option is invalid.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int | None = None,
        retries: RetryPolicy | None = None,
        deadline_seconds: float | None = 300.0,
        verify: bool | ssl.SSLContext = True,
        http_client: httpx.Client | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if max_retries is not None and (retries is not None or max_retries < 0):
            raise ValueError("give max_retries, at least 0, or retries, which has max_attempts")
        if timeout is None or not 0 < timeout < math.inf:
            raise ValueError(
                f"timeout is a number of seconds above 0, not {timeout!r}; for no limit give a "
                f"large one, such as 86400"
            )
        if max_retries is not None:
            retries = RetryPolicy(max_attempts=max_retries + 1)
        address = ServiceAddress.of(base_url, api_key)
        path = address.socket_path
        # This client would connect by the URL, to port 80 of this machine.
        if http_client is not None and path is not None:
            raise ValueError(
                f"http_client does not connect to {address.shown}; leave http_client out with a "
                f"unix: address"
            )
        # Load certificates, which takes time, only for https.
        tls = httpx.create_ssl_context(verify) if address.url.startswith("https:") else None
        self._duplex = httpx.Client(transport=transport or DuplexTransport(tls, path))
        self._owns_http = http_client is None
        if transport is None and path is not None:
            transport = httpx.HTTPTransport(uds=path)
        self._http = http_client or httpx.Client(transport=transport, verify=tls or False)
        session = Session(retries or RetryPolicy(), timeout, deadline_seconds)
        self._bind(Sender(address, session, self._http, self._duplex))

    def _bind(self, sender: Sender) -> None:
        self._sender = sender
        self.jobs = JobResource(sender)
        self.corpora = CorpusResource(sender)
        self.tokenizers = TokenizerResource(sender)
        self.token_files = TokenFileResource(sender)

    def close(self) -> None:
        """Close all connections, which pinned clients share."""
        if self._owns_http:
            self._http.close()
        self._duplex.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        session = self._sender.session
        pin = session.tokenizer or session.digest
        pinned = f", pinned to {pin}" if pin else ""
        return f"{type(self).__name__}({self._sender.address.shown!r}{pinned})"

    def pinned(
        self, tokenizer: TokenizerOrName | None = None, *, digest: str | None = None
    ) -> Self:
        """A client that keeps using one tokenizer when another is promoted.

        `tokenizer` is `name@version` (`name`: its newest version), or a tokenizer that the service
        described. With the `digest` of a tokenizer, a response from another tokenizer raises
        DigestMismatchError. Both clients share their connections.

        Example:
            >>> active = client.tokenizers.active()
            >>> client.pinned(digest=active.digest).count("low") == client.count("low")
            True
        """
        session, pinned = self._sender.session, copy.copy(self)
        name = name_of(tokenizer) if tokenizer else session.tokenizer
        pinned._bind(self._sender.pinned(name, digest or session.digest))
        return pinned

    def encode(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> list[int]:
        """The token ids of a text.

        Example:
            >>> client.decode(client.encode("low, lower"))
            'low, lower'
        """
        return to_list(self._encode_one("encode", locals()))

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> IdArray:
        """The token ids of a text as an array, shape (n_tokens,), uint32; makes no Python ints.

        Example:
            >>> client.encode_to_numpy("low, lower").dtype
            dtype('uint32')
        """
        return self._encode_one("encode_to_numpy", locals())

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> list[list[int]]:
        """The token ids of each of many texts, in one request.

        Example:
            >>> client.encode_batch(["low", ""]) == [client.encode("low"), []]
            True
        """
        ids, offsets = self._encode_many("encode_batch", locals())
        listed = to_list(ids)
        return [listed[start:end] for start, end in pairwise(offsets.tolist())]

    def encode_batch_to_numpy(
        self,
        texts: Sequence[str],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> tuple[IdArray, NDArray[np.uint64]]:
        """The ids of many texts, (n_tokens,) uint32, and offsets, (n_texts + 1,) uint64.

        The ids of text i are `ids[offsets[i]:offsets[i + 1]]`.

        Example:
            >>> ids, offsets = client.encode_batch_to_numpy(["low", "lower"])
            >>> client.decode(ids[offsets[1] : offsets[2]])
            'lower'
        """
        return self._encode_many("encode_batch_to_numpy", locals())

    def encode_segments(
        self,
        segments: Iterable[tuple[str, bool]],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
        max_tokens: int | None = None,
    ) -> list[int]:
        """The token ids of a text given in parts, each with whether its author is trusted.

        The ids are those of the joined text; a control token is recognised only where all its
        characters are in trusted parts, with `added_tokens="none"` any added token.

        Example:
            >>> client.encode_segments([("low", False), (", lower", True)]) == client.encode(
            ...     "low, lower"
            ... )
            True
        """
        return to_list(self._encode_segments(locals()))

    def encode_segments_to_numpy(
        self,
        segments: Iterable[tuple[str, bool]],
        *,
        add_special_tokens: bool = False,
        added_tokens: AddedTokens = "all",
        max_tokens: int | None = None,
    ) -> IdArray:
        """As `encode_segments`, as an array, shape (n_tokens,), uint32.

        Example:
            >>> client.encode_segments_to_numpy([("low", False)]).dtype
            dtype('uint32')
        """
        return self._encode_segments(locals())

    def encode_with_pieces(
        self,
        text: str,
        *,
        offset_unit: Literal["byte", "char"] = "byte",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
    ) -> EncodeResponse:
        """The ids of a text, the bytes and the offsets of each token, and the tokenizer.

        Example:
            >>> client.encode_with_pieces("low").offsets[0][0]
            0
        """
        require_text(text, "encode_with_pieces")
        fields = fields_of(EncodeRequest, locals()) | {"return": ["ids", "pieces", "offsets"]}
        found = self._sender.post("/encode", fields, EncodeResponse)
        for part in (found.tokens, found.pieces, found.offsets):
            if part is None or len(part) != found.count or any(isinstance(x, list) for x in part):
                raise UnexpectedResponseError(
                    "the response has not one id, one piece and one pair of offsets for each token"
                )
        check_most_tokens(cast("int", found.count), max_tokens)
        return found

    def decode(
        self, ids: Ids, *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> str:
        """The text of token ids, given as a list or a numpy array of integers.

        Example:
            >>> client.decode(client.encode_to_numpy("low, lower"))
            'low, lower'
        """
        require_ids(ids, "decode", "decode_batch")
        body = render_ids(ids)
        data = self._decode(body, IDS, locals())
        try:
            return data.decode()
        except UnicodeDecodeError:
            text = self._decode_text(body, IDS, locals())
        if not isinstance(text, str):
            raise UnexpectedResponseError("the response to one list of ids has the texts of many")
        return text

    def decode_bytes(
        self, ids: Ids, *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> bytes:
        """The bytes of token ids, which may be invalid UTF-8.

        Example:
            >>> client.decode_bytes(client.encode("é"))
            b'\\xc3\\xa9'
        """
        require_ids(ids, "decode_bytes", "decode_batch")
        return bytes(self._decode(render_ids(ids), IDS, locals()))

    def decode_batch(
        self, rows: Sequence[Ids], *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> list[str]:
        """The text of each of many lists of token ids, in one request.

        Example:
            >>> client.decode_batch(client.encode_batch(["low", "lower"]))
            ['low', 'lower']
        """
        rows = require_rows(rows)
        body = render_batch(rows)
        data = self._decode(body, BATCH, locals())
        joined, offsets = parse_batch(data, 1, len(rows))
        bounds = offsets.tolist()
        try:
            return [joined[start:end].decode() for start, end in pairwise(bounds)]
        except UnicodeDecodeError:
            texts = self._decode_text(body, BATCH, locals())
        if not isinstance(texts, list) or len(texts) != len(rows):
            raise UnexpectedResponseError("the response to a batch has not one text for each list")
        return texts

    def count(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> int:
        """The number of tokens of a text; the service computes no ids.

        Example:
            >>> client.count("low, lower") == len(client.encode("low, lower"))
            True
        """
        require_text(text, "count", "count_batch")
        return require_one(self._count(locals()).count)

    def count_segments(
        self, segments: Iterable[tuple[str, bool]], *, added_tokens: AddedTokens = "all"
    ) -> int:
        """The number of tokens of `encode_segments`; the service computes no ids.

        Example:
            >>> client.count_segments([("low", False)]) == client.count("low")
            True
        """
        arguments = {"segments": segment_fields(segments), "added_tokens": added_tokens}
        return require_one(self._count(arguments).count)

    def count_batch(
        self,
        texts: Sequence[str],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
    ) -> list[int]:
        """The number of tokens of each of many texts.

        Example:
            >>> client.count_batch(["low", ""])[1]
            0
        """
        arguments = {"text": require_texts(texts, "count_batch", "count"), **locals()}
        counts = self._count(arguments).count
        if not isinstance(counts, list) or len(counts) != len(arguments["text"]):
            raise UnexpectedResponseError("the response to a batch has not one count for each text")
        return counts

    def encode_chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        max_tokens: int | None = None,
    ) -> list[int]:
        """The token ids of a conversation, as the tokenizer's chat template writes it.

        Control tokens come from the template only, never from the text of a user.

        Example:
            >>> messages = [{"role": "user", "content": "Hello"}]
            >>> ids = client.encode_chat(messages, add_generation_prompt=True)
            >>> len(ids) == client.count_chat(messages, add_generation_prompt=True)
            True
        """
        return to_list(self._encode_ids("/chat/encode", chat_fields("encode_chat", locals())))

    def encode_chat_to_numpy(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        max_tokens: int | None = None,
    ) -> IdArray:
        """The token ids of a conversation as an array, shape (n_tokens,), uint32.

        Example:
            >>> client.encode_chat_to_numpy([{"role": "user", "content": "Hello"}]).dtype
            dtype('uint32')
        """
        return self._encode_ids("/chat/encode", chat_fields("encode_chat_to_numpy", locals()))

    def encode_chat_with_mask(
        self,
        messages: Messages,
        *,
        loss_rule: LossRule = "auto",
        turn_ends: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        max_tokens: int | None = None,
    ) -> ChatEncodeResponse:
        """The ids of a conversation, its text, a loss mask, and the tokens of each message.

        `mask` has 1 for each token that the assistant shall learn to write, found by `loss_rule`:
        the generation tags of the template, the messages of the assistant, or (`auto`) the tags if
        there are any. `turns` says of each turn which tokens are learned, and what is wrong with
        it; `turn_ends` are added tokens that end one.

        Example:
            >>> messages = [{"role": "user", "content": "Hello"}]
            >>> found = client.encode_chat_with_mask(messages)
            >>> found.spans[0].role, sum(found.mask)
            ('user', 0)
        """
        fields = chat_fields("encode_chat_with_mask", locals())
        fields["return"] = ["ids", "text", "mask", "spans"]
        found = self._sender.post("/chat/encode", fields, ChatEncodeResponse)
        if found.text is None or found.spans is None:
            raise UnexpectedResponseError("the response has no text or no spans of the messages")
        for part in (found.tokens, found.mask):
            require_same("number of tokens", found.count, -1 if part is None else len(part))
        if messages_form != "vllm":  # which joins system messages
            require_same("number of messages", len(found.spans), len(fields["messages"]))
        bounds = [span.tokens for span in found.spans if span.tokens is not None]
        if not all(0 <= start <= end <= found.count for start, end in bounds):
            raise UnexpectedResponseError("a message in the response has tokens that are not there")
        check_most_tokens(found.count, max_tokens)
        return found

    def count_chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        max_tokens: int | None = None,
    ) -> int:
        """The number of tokens of a conversation.

        Example:
            >>> client.count_chat([{"role": "user", "content": "Hello"}]) > 0
            True
        """
        fields = chat_fields("count_chat", locals()) | {"return": []}
        count = self._sender.post("/chat/encode", fields, ChatEncodeResponse).count
        check_most_tokens(count, max_tokens)
        return count

    def extend(
        self,
        ids: Ids,
        text: str | Iterable[tuple[str, bool]],
        *,
        mask: Ids | None = None,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
        max_tokens: int | None = None,
    ) -> ExtendResponse:
        """`ids` unchanged, then those of `text`, or of its segments as of `encode_segments`.

        `first_drift` is the first index where encoding the whole text gives other ids. `mask` (1
        for each id that a model generated) comes back with a 0 for each new id.

        Example:
            >>> client.extend(client.encode("low"), ", lower").first_drift is None
            True
        """
        given = locals()
        if not isinstance(text, str):
            given = {**given, "text": None, "segments": segment_fields(text)}
        fields = fields_of(ExtendRequest, given) | kept_fields("extend", given)
        return self._extend(fields, max_tokens)

    def extend_chat(
        self,
        ids: Ids,
        earlier: Messages,
        messages: Messages,
        *,
        mask: Ids | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        added_tokens: AddedTokens = "all",
        messages_form: MessagesForm = "raw",
        max_tokens: int | None = None,
    ) -> ExtendResponse:
        """`ids` unchanged, then those of what the chat template writes for `messages` after the
        `earlier` ones, which `ids` hold.

        `first_drift` is the first index where encoding all messages gives other ids. `mask` (1 for
        each id that a model generated) comes back with a 0 for each new id.

        Example:
            >>> chat = [{"role": role, "content": "Hi"} for role in ("user", "assistant", "user")]
            >>> ids = client.encode_chat(chat[:2])
            >>> client.extend_chat(ids, chat[:2], chat[2:]).tokens == client.encode_chat(chat)
            True
        """
        given = locals() | {
            "messages_before": message_list("extend_chat", "earlier", earlier),
            "messages": message_list("extend_chat", "messages", messages),
        }
        fields = fields_of(ExtendChatRequest, given) | kept_fields("extend_chat", given)
        return self._extend(with_variables(fields, given), max_tokens)

    def extend_batch(
        self, batch: Iterable[Mapping[str, Any]], *, options: Mapping[str, Any] | None = None
    ) -> ExtendBatchResponse:
        """Many at once, as the route `/extend` takes them: each with the fields `tokens` and
        `text`, or `tokens`, `messages_before` and `messages`; `options` are the fields for all.

        Example:
            >>> found = client.extend_batch([{"tokens": client.encode("low"), "text": "er"}])
            >>> len(found.tokens), len(found.first_drift)
            (1, 1)
        """
        listed = [dict(item) for item in batch]
        fields = {**(options or {}), "batch": listed}
        found = self._sender.post("/extend", fields, ExtendBatchResponse)
        lengths = {len(part) for part in (found.tokens, found.mask, found.count, found.first_drift)}
        require_same("numbers of items", lengths, {len(listed)})
        return found

    def derender_chat(
        self,
        response: Mapping[str, Any],
        *,
        chat_request: Mapping[str, Any] | None = None,
        parser: str | None = None,
        prompt_token_ids: Ids | None = None,
    ) -> DerenderedResponse:
        """The chat completion of a response of vLLM's `/inference/v1/generate`.

        `parser` names how the model writes reasoning and tool calls; by default the tokenizer says.

        Example:
            >>> choice = {"index": 0, "token_ids": client.encode("low"), "finish_reason": "stop"}
            >>> found = client.derender_chat({"request_id": "1", "choices": [choice]})
            >>> found.choices[0]["message"]["content"]
            'low'
        """
        fields = {"generate_response": dict(response), **derender_fields(locals())}
        return self._sender.post(_DERENDER, fields, DerenderedResponse)

    def derender_chat_chunk(
        self,
        chunk: Mapping[str, Any],
        state: StreamState | None,
        *,
        chat_request: Mapping[str, Any] | None = None,
        parser: str | None = None,
        prompt_token_ids: Ids | None = None,
    ) -> DerenderedChunk:
        """The chunk of a chat completion for a chunk of vLLM's `/inference/v1/generate`, and the
        state to pass with the next one; None with the first.

        Example:
            >>> choice = {"index": 0, "token_ids": client.encode("low")}
            >>> found = client.derender_chat_chunk({"request_id": "1", "choices": [choice]}, None)
            >>> found.stream_state.n_calls
            0
        """
        fields = {
            "stream": True,
            "generate_chunk": dict(chunk),
            "stream_state": None if state is None else state.model_dump(),
            **derender_fields(locals()),
        }
        return self._sender.post(_DERENDER, fields, DerenderedChunk)

    def fits(
        self,
        text: str,
        max_tokens: int,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> bool:
        """Whether a text has at most `max_tokens` tokens; the service stops counting there.

        Example:
            >>> client.fits("low, lower", 1)
            False
        """
        require_text(text, "fits")
        counted = self._count({**locals(), "limit": max_tokens})
        check_most_tokens(require_one(counted.count), max_tokens)
        return not require_one(counted.limit_exceeded)

    def truncate(
        self,
        text: str,
        max_tokens: int,
        *,
        side: Literal["right", "left"] = "right",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
    ) -> TruncateResponse:
        """The beginning of a text (`side="left"`: its end) of at most `max_tokens` tokens.

        Never cuts inside a character. `tokens` are the ids of the remaining text.

        Example:
            >>> client.truncate("low, lower", 1000).truncated
            False
        """
        require_text(text, "truncate")
        fields = fields_of(TruncateRequest, locals())
        found = self._sender.post("/truncate", fields, TruncateResponse)
        require_same("number of tokens", found.count, len(found.tokens))
        check_most_tokens(found.count, max_tokens)
        return found

    def chunk(
        self,
        text: str,
        max_tokens: int,
        *,
        overlap_tokens: int = 0,
        offset_unit: Literal["byte", "char"] = "byte",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
    ) -> list[Chunk]:
        """A text in chunks of at most `max_tokens` tokens, each with its ids and its position.

        Example:
            >>> "".join(chunk.text for chunk in client.chunk("low, lower, lowest", 3))
            'low, lower, lowest'
        """
        require_text(text, "chunk")
        fields = fields_of(ChunkRequest, locals())
        chunks = self._sender.post("/chunk", fields, ChunkResponse).chunks
        for found in chunks:
            check_most_tokens(len(found.tokens), max_tokens)
        bounds = [0, *(found.end for found in chunks)]
        if bounds != sorted(bounds) or any(found.start > found.end for found in chunks):
            raise UnexpectedResponseError("the chunks in the response are not in order")
        return chunks

    def verify(
        self,
        text: str,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> VerifyResponse:
        """Whether decoding the ids of a text gives the text, and where it first differs.

        Example:
            >>> client.verify("low, lower").ok
            True
        """
        require_text(text, "verify")
        return self._verify(locals())

    def verify_ids(self, ids: Ids) -> VerifyResponse:
        """Whether encoding the text of ids gives the ids, and where it first differs.

        Example:
            >>> client.verify_ids(client.encode("low, lower")).ok
            True
        """
        require_ids(ids, "verify_ids")
        return self._verify({"tokens": plain_ids(ids)})

    def align(
        self,
        text: str,
        other: str,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> AlignResponse:
        """The ids of a text by this tokenizer and another one, in groups of the same bytes.

        Example:
            >>> client.align("low, lower", "starter").byte_offsets[-1]
            10
        """
        require_text(text, "align")
        fields = fields_of(AlignRequest, locals())
        found = self._sender.post("/align", fields, AlignResponse)
        bounds = found.offsets, found.other_offsets, found.byte_offsets
        ends = [len(found.tokens)], [len(found.other_tokens)], [len(text.encode())]
        require_same("ends of groups", tuple(each[-1:] for each in bounds), ends)
        require_same("numbers of groups", {*map(len, bounds)}, {len(found.offsets)})
        return found

    def describe_token(self, token_id: int, *, depth: int = 8) -> VocabResponse:
        """One token: its bytes, its rank, and the tree of its merges, down to `depth`.

        Example:
            >>> client.describe_token(client.encode("a")[0]).text
            'a'
        """
        if isinstance(token_id, bool) or not isinstance(token_id, int | np.integer):
            kind = type(token_id).__name__
            raise TypeError(f"describe_token() takes one id as an int, not {kind}")
        session = self._sender.session
        query = (("depth", str(depth)), *query_of({"tokenizer": session.tokenizer}))
        request = Request("GET", f"/vocab/{int(token_id)}", query, session.pin_headers)
        found = self._sender.send(request).parse(VocabResponse)
        require_same("id", found.id, int(token_id))
        return found

    def encode_stream(
        self,
        source: Given[str | bytes],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
    ) -> Generator[IdArray, None, None]:
        """The ids of a text of any length, in arrays (n,) uint32, as they arrive.

        `source` is a Path, a file opened for reading bytes, bytes, or an iterable of str or bytes
        (for AsyncClient also an async one), split anywhere. The arrays joined are the ids of the
        whole text.

        Raises:
            StreamCutOffError: the stream ended early; the arrays so far are not all ids.
            ProblemError: the service refuses, possibly in the middle of the stream.

        Example:
            >>> import numpy as np
            >>> client.decode(np.concatenate(list(client.encode_stream(["low, l", b"ower"]))))
            'low, lower'
        """
        body, reader = Source(source, render_text), FrameReader()
        request = self._sender.bytes_request("/encode_stream", _TEXT, body, locals())
        with contextlib.closing(self._sender.payloads(request, reader)) as payloads:
            for payload in payloads:
                yield parse_id_bytes(bytearray(payload))
        reader.check(n_ids=reader.n_payload_bytes // 4, n_text_bytes=body.n_bytes)

    def decode_stream(
        self,
        source: Given[Ids | bytes],
        *,
        width: Width = "u32",
        skip_special_tokens: bool = False,
        errors: Errors = "replace",
    ) -> Generator[str, None, None]:
        """The text of any number of ids, in parts that never end inside a character.

        `source` is a Path or a file of raw little-endian ids of this `width`, bytes of the same, or
        an iterable of lists or arrays of ids. Raises what `encode_stream` raises.

        Example:
            >>> "".join(client.decode_stream(client.encode_stream([b"low, lower"])))
            'low, lower'
        """
        body, reader = Source(source, partial(render_item, width=width)), FrameReader()
        form = f"{OCTETS}; dtype={width}"
        request = self._sender.bytes_request("/decode_stream", form, body, locals())
        with contextlib.closing(self._sender.payloads(request, reader)) as payloads:
            for payload in payloads:
                yield payload.decode()
        n_ids = body.n_bytes // DTYPES[width].itemsize
        reader.check(n_ids=n_ids, n_text_bytes=reader.n_payload_bytes)

    def info(self) -> InfoResponse:
        """The tokenizer that serves, its engine and the limits of the service.

        Example:
            >>> client.info().tokenizer.name
            'starter'
        """
        return self._sender.get("/info", InfoResponse)

    def is_ready(self) -> bool:
        """Whether the service serves a tokenizer that passed its round trip; sends one request.

        Example:
            >>> client.is_ready()
            True
        """
        session = self._sender.session
        try:
            self._require_ready(Deadline(session.clock, session.deadline_seconds))
        except (ConnectionLostError, UnavailableError):
            return False
        return True

    def wait_until_ready(self, *, deadline_seconds: float = 60.0) -> None:
        """Wait until the service is ready, for example while it starts.

        Raises:
            DeadlineExceededError: it was not ready within `deadline_seconds`.
        """
        deadline = Deadline(self._sender.session.clock, deadline_seconds)
        error: ClientError | None = None
        while True:
            try:
                self._require_ready(deadline)
                return
            except (ConnectionLostError, UnavailableError) as failed:
                error = failed
            except DeadlineExceededError:
                if error is None:
                    raise
            deadline.check(error)
            time.sleep(min(0.25, deadline.seconds_left))

    def train(
        self,
        *,
        corpus_ids: Sequence[str] | None = None,
        input_paths: Sequence[str] | None = None,
        input_urls: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
        format: FileFormat | None = None,  # noqa: A002 - the name of the field
        field: str | Sequence[str] | None = None,
        separator: str | None = None,
        skip_bad: bool | None = None,
        max_bad: float | None = None,
        vocab_size: int | None = None,
        special_tokens: Sequence[str] | None = None,
        name: str | None = None,
        pattern: str | None = None,
        extend: str | None = None,
        min_frequency: int | None = None,
        max_token_length: int | None = None,
        seed_tokens: Sequence[str] | None = None,
        reserved: int | None = None,
        superwords_from: int | None = None,
        pad_to_multiple: int | None = None,
        promote: Promote | None = None,
        limits: JobLimits | None = None,
        idempotency_key: str | None = None,
        wait: bool = False,
        on_progress: Callable[[AnyJobView], object] | None = None,
    ) -> JobView:
        """Start a training job and return it; with `wait`, once it is `live` or `succeeded`.

        Give exactly one of the first four; what is None has the default of the service. `pinned`
        does not apply. `wait` calls `on_progress` with the job each time it changes; without it,
        `jobs.wait` waits for the end.

        Each call generates an idempotency key. Pass the same key from several processes to start
        the job only once.

        Raises:
            ConflictError: the queue is full.
            InvalidRequestError: the options are invalid.
            JobFailedError: with `wait`, the job failed or was cancelled.
        """
        # A training run uses no tokenizer, so the pin does not apply.
        unpinned = self._sender.pinned(None, None)
        fields, key = fields_of(TrainRequest, locals()), idempotency_key or uuid.uuid4().hex
        started = unpinned.post("/train", fields, JobView, {"Idempotency-Key": key})
        if not wait:
            return started
        ended = self.jobs.wait(started, on_progress=on_progress)
        return JobView.model_validate(ended.model_dump())

    def _encode_one(self, method: str, arguments: Mapping[str, Any]) -> IdArray:
        require_text(arguments["text"], method, method.replace("encode", "encode_batch"))
        return self._encode_ids("/encode", fields_of(EncodeRequest, arguments))

    def _encode_segments(self, arguments: Mapping[str, Any]) -> IdArray:
        segments = segment_fields(arguments["segments"])
        fields = fields_of(EncodeRequest, {**arguments, "segments": segments})
        return self._encode_ids("/encode", fields)

    def _encode_ids(self, path: str, fields: Mapping[str, Any]) -> IdArray:
        ids = parse_id_bytes(self._sender.post_for_ids(path, fields, IDS))
        check_most_tokens(len(ids), fields.get("max_tokens"))
        return ids

    def _encode_many(
        self, method: str, arguments: Mapping[str, Any]
    ) -> tuple[IdArray, NDArray[np.uint64]]:
        for_one = method.replace("encode_batch", "encode")
        texts = require_texts(arguments["texts"], method, for_one)
        fields = fields_of(EncodeRequest, {"text": texts, **arguments})
        body = self._sender.post_for_ids("/encode", fields, BATCH)
        packed, offsets = parse_batch(body, 4, len(texts))
        if texts:
            check_most_tokens(int(np.diff(offsets).max()), fields.get("max_tokens"))
        return parse_id_bytes(packed), offsets

    def _decode(self, ids: bytes, form: str, arguments: Mapping[str, Any]) -> bytearray:
        request = self._sender.bytes_request("/decode", form, ids, arguments)
        response = self._sender.send(request)
        require_media_type(response.headers, form.replace("; dtype=u32", ""))
        return response.body

    def _decode_text(self, ids: bytes, form: str, arguments: Mapping[str, Any]) -> str | list[str]:
        """The text of bytes that are not UTF-8: how many U+FFFD it has depends on the tokenizer, so
        the service makes it. JSON takes 4 to 13 times as long as bytes, which are asked for first.
        """
        request = self._sender.bytes_request("/decode", form, ids, arguments, accept=JSON)
        return self._sender.send(request).parse(DecodeResponse).text

    def _count(self, arguments: Mapping[str, Any]) -> CountResponse:
        return self._sender.post("/count", fields_of(CountRequest, arguments), CountResponse)

    def _extend(self, fields: Mapping[str, Any], most: int | None) -> ExtendResponse:
        found = self._sender.post("/extend", fields, ExtendResponse)
        kept = fields["tokens"]
        if found.tokens[: len(kept)] != kept:
            raise UnexpectedResponseError("the response has another beginning than the ids")
        lengths = {found.count, len(found.tokens), len(found.mask or found.tokens)}
        require_same("number of ids", lengths, {len(found.tokens)})
        check_most_tokens(found.count, most)
        return found

    def _verify(self, arguments: Mapping[str, Any]) -> VerifyResponse:
        fields = fields_of(VerifyRequest, arguments)
        found = self._sender.post("/verify", fields, VerifyResponse)
        if found.ok != (found.first_difference is None):
            raise UnexpectedResponseError("the response both confirms and denies the round trip")
        return found

    def _require_ready(self, deadline: Deadline) -> None:
        with self._sender.open(Request("GET", "/readyz"), deadline) as response:
            require_media_type(response.headers, JSON)


class _Resource:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender


class JobResource(_Resource):
    """`client.jobs`: the training and encoding jobs of the service."""

    def list(
        self, *, kind: Literal["train", "encode"] | None = None, limit: int = 50
    ) -> AnyJobList:
        """The latest jobs, newest first."""
        found = self._sender.get("/jobs", AnyJobList, kind=kind, limit=limit)
        for job in found.jobs:
            require_same("kind", job.kind, kind or job.kind)
        return found

    def get(self, job: JobOrId) -> AnyJobView:
        """One job: its state, its progress, and the end of its log."""
        return self._sender.get_one("jobs", id_of(job), AnyJobView)

    def cancel(self, job: JobOrId) -> AnyJobView:
        """Cancel a job and return it. Cancelling a job that has ended is not an error."""
        request = Request("DELETE", path_of("jobs", id_of(job)))
        found = self._sender.send(request).parse(AnyJobView)
        require_same("id", found.id, id_of(job))
        return found

    def follow(
        self,
        job: JobOrId,
        *,
        deadline_seconds: float | None = None,
        patience_seconds: float = 300.0,
    ) -> Generator[AnyJobView, None, None]:
        """Yield a job each time it changes, the last time in its final state.

        After a lost connection, or while the service restarts, the call reconnects until it has
        received nothing for `patience_seconds`.

        Raises:
            DeadlineExceededError: `deadline_seconds` have passed (noticed up to 15 s late while the
                job does not change); the job continues.
            NotFoundError, ConnectionLostError, UnavailableError: see their classes.
        """
        attempts = Attempts(
            self._sender.session, deadline_seconds, patience_seconds=patience_seconds
        )
        headers: dict[str, str] = {}
        request = Request("GET", path_of("jobs", id_of(job), "events"), headers=headers)
        while True:
            try:
                with self._sender.open(request, attempts.deadline) as response:
                    require_media_type(response.headers, "text/event-stream")
                    reader = EventReader()
                    for piece in response.iter_bytes():
                        attempts.restart()  # the service sends comments while a job waits
                        for event in reader.feed(piece):
                            headers["Last-Event-ID"] = event.id
                            view = parse_json(event.data, AnyJobView)
                            require_same("id", view.id, id_of(job))
                            yield view
                            if view.state not in _UNFINISHED:
                                return
                        attempts.deadline.check()
                raise ConnectionLostError("the events ended", was_sent=True)
            except ClientError as failed:
                error = failed
            if isinstance(error, ProblemError) and error.code == "too_many_listeners":
                view = self.get(job)  # poll instead
                attempts.restart()
                yield view
                if view.state not in _UNFINISHED:
                    return
            self._sender.wait(attempts, error, request)

    def wait(
        self,
        job: JobOrId,
        *,
        on_progress: Callable[[AnyJobView], object] | None = None,
        deadline_seconds: float | None = None,
        patience_seconds: float = 300.0,
    ) -> AnyJobView:
        """Wait until a job is `live` or `succeeded`, and return it.

        Calls `on_progress` with the job each time it changes.

        Raises:
            JobFailedError: the job failed or was cancelled.
            DeadlineExceededError and others: see `follow`.
        """
        views = self.follow(
            job, deadline_seconds=deadline_seconds, patience_seconds=patience_seconds
        )
        with contextlib.closing(views):
            for view in views:
                if on_progress is not None:
                    on_progress(view)
        if view.state in ("failed", "cancelled"):
            raise JobFailedError(view)
        return view


class CorpusResource(_Resource):
    """`client.corpora`: the uploaded corpora."""

    def upload(
        self,
        corpus_id: str,
        source: Given[str | bytes],
        *,
        replace: bool = True,
        format: FileFormat | None = None,  # noqa: A002 - the name of the field
        field: str | None = None,
        on_progress: Progress | None = None,
    ) -> Corpus:
        """Upload text, JSON lines or Parquet of any size; the service stores all of it or nothing.

        `source` may be all that `encode_stream` accepts. `format` is by default what the name of a
        file, else `corpus_id`, ends in, else text; `field` names the field or column of the
        documents. The client retries after a lost connection if it can read the source again. With
        `replace=False` it never replaces an existing corpus.

        Raises:
            PreconditionFailedError: `replace=False`, and the corpus exists.
            TooLargeError: the file exceeds the quota.
            InvalidRequestError: the file is not of the format.
        """
        body = Source(source, render_text, on_progress=on_progress)
        headers = {"Content-Type": OCTETS}
        if body.size_bytes is not None:  # so that the service can refuse a large upload immediately
            headers["Content-Length"] = str(body.size_bytes)
        if not replace:
            headers["If-None-Match"] = "*"
        if format is None and isinstance(source, os.PathLike):
            name = os.fsdecode(source).lower()
            format = next((known for known in FILE_FORMATS if name.endswith(f".{known}")), None)  # noqa: A001
        query = query_of({"format": format, "field": field})
        request = Request("PUT", path_of("corpora", corpus_id), query, headers, body)
        # It may take any time, so it has no deadline.
        attempts = Attempts(self._sender.session, None, is_idempotent=replace)
        stored = self._sender.send(request, attempts).parse(Corpus)
        require_same("id", stored.id, corpus_id)
        require_same("number of bytes", stored.bytes, body.n_bytes)
        return stored

    def list(self) -> CorpusList:
        """The uploaded corpora, and their share of the quota."""
        return self._sender.get("/corpora", CorpusList)

    def get(self, corpus: CorpusOrId) -> Corpus:
        """One corpus: its size, its sha256 and its upload time."""
        return self._sender.get_one("corpora", id_of(corpus), Corpus)

    def remove(self, corpus: CorpusOrId) -> None:
        """Remove a corpus for good.

        Raises:
            ConflictError: an unfinished job uses it.
        """
        self._sender.delete(path_of("corpora", id_of(corpus)))

    def encode(
        self,
        corpus: CorpusOrId,
        *,
        allowed_special: AllowedSpecial | None = None,
        disallowed_special: DisallowedSpecial = (),
        added_tokens: AddedTokens = "all",
        further_corpora: Sequence[str] | None = None,
        token_files_id: str | None = None,
        tokenizer: TokenizerOrName | None = None,
        format: Literal[FileFormat, "chat"] | None = None,  # noqa: A002 - the name of the field
        field: str | Sequence[str] | None = None,
        separator: str | None = None,
        loss: LossRule | None = None,
        chat_template: str | None = None,
        turn_ends: Sequence[str] | None = None,
        skip_bad: bool | None = None,
        max_bad: float | None = None,
        max_length: int | None = None,
        over_length: OverLength | None = None,
        begin_of_document: str | None = None,
        end_of_document: str | None = None,
        layout: Literal["raw", "npy", "megatron", "llmc", "parquet"] | None = None,
        dtype: Literal["auto", "uint16", "uint32"] | None = None,
        tokens_per_shard: int | None = None,
        validation_share: float | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        workers: int | None = None,
        limits: JobLimits | None = None,
        idempotency_key: str | None = None,
    ) -> EncodeJobView:
        """Start a job that encodes an uploaded corpus to token files, and return immediately.

        `token_files_id` names the token files; the default is the id of the job. Raises what
        `train` raises.
        """
        if tokenizer is not None:
            tokenizer = name_of(tokenizer)
        fields, key = fields_of(EncodeCorpusRequest, locals()), idempotency_key or uuid.uuid4().hex
        if allowed_special == "all":  # no default here
            fields["allowed_special"] = "all"
        path = path_of("corpora", id_of(corpus), "encode")
        return self._sender.post(path, fields, EncodeJobView, {"Idempotency-Key": key})


class TokenizerResource(_Resource):
    """`client.tokenizers`: the published tokenizers, and the active one."""

    def list(self) -> TokenizersResponse:
        """Every published version, by name, newest first, and which is active.

        Example:
            >>> client.tokenizers.list().active.name
            'starter'
        """
        return self._sender.get("/tokenizers", TokenizersResponse)

    def versions(self, name: str) -> Versions:
        """The versions of one tokenizer with their manifests, newest first.

        Example:
            >>> client.tokenizers.versions("starter")[0].active
            True
        """
        found = self._sender.get(path_of("tokenizers", name), TokenizersResponse)
        for one in found.tokenizers:
            require_same("name", one.name, name)
        return found.tokenizers

    def active(self) -> ActiveTokenizer:
        """The tokenizer for requests that name none, and the `previous` one; pin it by its
        `digest`.

        Example:
            >>> client.tokenizers.active().name
            'starter'
        """
        return self._sender.get("/tokenizers/active", ActiveTokenizer)

    def file(self, tokenizer: TokenizerOrName, file: str) -> bytes:
        """A file of a version (`name@version`): `tokenizer.json`, `vocab.pkl`, ...

        Example:
            >>> active = client.tokenizers.active()
            >>> client.tokenizers.file(f"{active.name}@{active.version}", "tokenizer.json")[:1]
            b'{'
        """
        request = Request("GET", path_of("tokenizers", *version_of(tokenizer), file))
        response = self._sender.send(request)
        require_media_type(response.headers, _MEDIA_TYPES.get(file.rpartition(".")[2], OCTETS))
        return bytes(response.body)

    def import_files(
        self,
        name: str,
        files: Mapping[str, bytes],
        *,
        preset: str | None = None,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        ids: str | None = None,
    ) -> ImportedTokenizer:
        """Publish a vocabulary as the newest version of `name`, and promote nothing.

        `files` are `tokenizer.json`, a `.tiktoken` file, `tekken.json` or `tokenizer.model`, or the
        files of a model folder by their names. A `.tiktoken` file that is no preset's needs
        `pattern` and `special_tokens`, which may be empty.

        Raises:
            InvalidRequestError: the files cannot be imported; the detail says why.
            ConflictError: another import runs, or the name belongs to another tokenizer.
        """
        special = [f"{token}={id_}" for token, id_ in (special_tokens or {}).items()]
        query = query_of(
            {
                "preset": preset,
                "pattern": pattern,
                "special": special or None,
                "no_special": special_tokens == {} or None,
                "ids": ids,
            }
        )
        kind, body = form_of(files)
        path = path_of("tokenizers", name)
        request = Request("POST", path, query, {"Content-Type": kind}, body)
        # It takes as long as the service allows. The same files again give the same version.
        attempts = Attempts(self._sender.session, None, is_idempotent=True)
        imported = self._sender.send(request, attempts).parse(ImportedTokenizer)
        require_same("name", imported.name, name)
        return imported

    def promote(
        self, tokenizer: TokenizerOrName, *, if_match: str | None = None
    ) -> PromoteResponse:
        """Make `name` (its newest version) or `name@version` the active tokenizer.

        Returns once all processes of the service use it. `if_match` is the digest that must be
        active now, so that the call does not overwrite a promotion by another client.

        Raises:
            DigestMismatchError: another digest is active.
            ConflictError: another promotion is in progress.
        """
        name = name_of(tokenizer)
        headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
        found = self._sender.put(
            "/tokenizers/active",
            {"tokenizer": name},
            PromoteResponse,
            headers,
            # After the first promotion the digest has changed: a repeated request would get a 412.
            is_idempotent=if_match is None,
        )
        present = found.active.name + (f"@{found.active.version}" if "@" in name else "")
        require_same("tokenizer", present, name)
        return found

    def roll_back(self, promotion: PromoteResponse | None = None) -> PromoteResponse:
        """Undo a promotion, by default the last: make the previously active tokenizer active again.

        Raises:
            DigestMismatchError: a later promotion made another tokenizer active; it stays active.
            ValueError: no tokenizer was active before.
        """
        if promotion is None:
            now = self.active()
            promotion = PromoteResponse(active=now, previous=now.previous)
        if promotion.previous is None:
            raise ValueError(
                "no tokenizer was active before this promotion; promote the one that should be"
            )
        return self.promote(promotion.previous, if_match=promotion.active.digest)

    def remove(self, tokenizer: TokenizerOrName) -> None:
        """Remove a version (`name@version`) for good.

        Raises:
            ConflictError: the version is in use.
        """
        self._sender.delete(path_of("tokenizers", *version_of(tokenizer)))

    def models(self) -> ModelsResponse:
        """The names and aliases that `model` may be in requests of other servers' clients.

        Example:
            >>> client.tokenizers.models().data[0].id
            'starter'
        """
        return self._sender.get("/models", ModelsResponse)

    def add_alias(self, alias: str, name: str) -> ModelResponse:
        """Let such requests name the tokenizer `name` as `alias`: 1 to 200 printable ASCII
        characters.

        Raises:
            ConflictError: the alias belongs to another tokenizer, or is a tokenizer's name.
            NotFoundError: there is no such tokenizer.
        """
        path = path_of("models", alias)
        found = self._sender.put(path, {"tokenizer": name}, ModelResponse)
        require_same("alias", found.id, alias)
        return found

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; its tokenizer stays."""
        self._sender.delete(path_of("models", alias))


class TokenFileResource(_Resource):
    """`client.token_files`: the encoded corpora."""

    def list(self) -> TokenFilesList:
        """All token files, and their size."""
        return self._sender.get("/token-files", TokenFilesList)

    def get(self, token_files: TokenFilesOrId) -> TokenFilesView:
        """Token files: their tokenizer, corpora, splits and each file."""
        return self._sender.get_one("token-files", id_of(token_files), TokenFilesView)

    def remove(self, token_files: TokenFilesOrId) -> None:
        """Remove token files for good."""
        self._sender.delete(path_of("token-files", id_of(token_files)))

    def download(
        self,
        token_files: TokenFilesOrId,
        folder: os.PathLike[str] | str,
        *,
        on_progress: Progress | None = None,
    ) -> TokenFilesView:
        """Download token files into `folder`; `tokenizer_core.corpus` opens it.

        Skips files that are already complete and continues partial ones. Writes the manifest last,
        so a folder with a manifest is complete.

        Raises:
            UnexpectedResponseError: a file does not have the sha256 that the service announced.
        """
        view = self.get(token_files)
        target = Path(folder)
        operator.call(target.mkdir, parents=True, exist_ok=True)
        n_before, n_total = 0, sum(file.bytes for file in view.files)

        def report(n_bytes: int) -> None:
            if on_progress is not None:
                on_progress(n_before + n_bytes, n_total)

        for file in sorted(view.files, key=lambda file: file.name == _MANIFEST):
            if Path(file.name).name != file.name or file.name in ("", ".."):
                raise UnexpectedResponseError("the token files name a file that is a path")
            path = target / file.name
            if not operator.call(is_whole, path, file.bytes, file.sha256):
                url = path_of("token-files", view.id, file.name)
                self._download(url, file, path, report)
            n_before += file.bytes
            report(0)
        return view

    def _download(
        self, url: str, wanted: TokenFile, path: Path, report: Callable[[int], object]
    ) -> None:
        file = operator.call(PartialFile, path)
        was_resumed = file.n_bytes > 0
        try:
            self._fetch(url, wanted, file, report)
            if file.sha256 != wanted.sha256 and was_resumed:
                file.restart()  # an earlier process was downloading another file of this name
                self._fetch(url, wanted, file, report)
            if file.sha256 != wanted.sha256:
                file.discard()
                raise UnexpectedResponseError(f"{wanted.name} arrived with a wrong sha256")
            operator.call(file.publish)
        finally:
            file.close()

    def _fetch(
        self, url: str, wanted: TokenFile, file: PartialFile, report: Callable[[int], object]
    ) -> None:
        """Append the missing bytes; each received piece restarts the count of attempts."""
        attempts = Attempts(self._sender.session, deadline_seconds=None)
        if file.n_bytes > wanted.bytes:
            file.restart()
        while file.n_bytes < wanted.bytes:
            headers = {}
            if file.n_bytes:
                headers = {"Range": f"bytes={file.n_bytes}-", "If-Range": f'"{wanted.sha256}"'}
            request, held = Request("GET", url, headers=headers), bytearray()
            try:
                with self._sender.open(request, attempts.deadline) as response:
                    if response.status_code != 206:
                        file.restart()
                    for piece in response.iter_bytes():
                        held += piece
                        attempts.restart()
                        if len(held) >= _WRITE_BYTES:
                            full, held = held, bytearray()
                            operator.call(file.write, full)
                            report(file.n_bytes)
                error: ClientError = ConnectionLostError("the response ended early", was_sent=True)
            except ClientError as failed:
                error = failed
            finally:
                file.write(held)
            if file.n_bytes < wanted.bytes:
                self._sender.wait(attempts, error, request)
