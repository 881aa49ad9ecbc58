"""Client: every call of the service as a blocking method.

`make_async_client.py` makes async_client.py of this file: change methods here.
Each method spells out its parameters, for `help`, completion and type checkers.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from tokenizer_client.base import (
    BaseClient,
    CorpusOrId,
    JobOrId,
    Runner,
    TokenFilesOrId,
    TokenizerOrName,
    id_of,
    name_of,
)
from tokenizer_client.calls import chat as chat_calls
from tokenizer_client.calls import corpora, jobs, service, streams
from tokenizer_client.calls import text as text_calls
from tokenizer_client.calls.chat import Messages
from tokenizer_client.calls.corpora import Progress
from tokenizer_client.calls.exchange import Emitting, Flow
from tokenizer_client.calls.jobs import JobLimits
from tokenizer_client.calls.local_files import Given
from tokenizer_client.calls.retries import RetryPolicy
from tokenizer_client.calls.streams import EncodedFile
from tokenizer_client.calls.text import AddedTokens, AllowedSpecial, DisallowedSpecial, Errors
from tokenizer_client.calls.wire_formats import IdArray, Ids, Width
from tokenizer_client.schemas.chat import ChatEncodeResponse, MessagesForm
from tokenizer_client.schemas.jobs import (
    AnyJobSummary,
    AnyJobView,
    Corpus,
    CorpusList,
    EncodeJobView,
    FileFormat,
    JobView,
    Promote,
)
from tokenizer_client.schemas.text import Chunk, TruncateResponse, VerifyResponse, VocabResponse
from tokenizer_client.schemas.token_files import (
    LossRule,
    OverLength,
    TokenFilesList,
    TokenFilesView,
)
from tokenizer_client.schemas.tokens import (
    EncodeResponse,
    InfoResponse,
    ModelResponse,
    ModelsResponse,
    PromoteResponse,
    TokenizersResponse,
    TokenizerSummary,
)
from tokenizer_client.transport import DuplexTransport

T = TypeVar("T")

JobSummaries: TypeAlias = list[AnyJobSummary]
Versions: TypeAlias = list[TokenizerSummary]
"""In the resources, `list` is a method."""


class Client(BaseClient):
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
        super().__init__(base_url, api_key, timeout, max_retries, retries, deadline_seconds, verify)
        # This client would connect by the URL, to port 80 of this machine.
        if http_client is not None and self._address.socket_path is not None:
            raise ValueError(
                f"http_client does not connect to {self._address.shown}; leave http_client out "
                f"with a unix: address"
            )
        duplex = transport or DuplexTransport(self._tls, self._address.socket_path)
        self._owns_http = http_client is None
        if transport is None and self._address.socket_path is not None:
            transport = httpx.HTTPTransport(uds=self._address.socket_path)
        self._http = http_client or httpx.Client(transport=transport, verify=self._tls or False)
        self._duplex = httpx.Client(transport=duplex)
        self._bind()

    def _bind(self) -> None:
        self.jobs = JobResource(self)
        self.corpora = CorpusResource(self)
        self.tokenizers = TokenizerResource(self)
        self.token_files = TokenFileResource(self)

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

    def _run(self, flow: Flow[T]) -> T:
        try:
            next(Runner(self, self._http, self._duplex).run(flow))
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a call with one result emitted a part")

    def _iterate(self, flow: Emitting[T]) -> Generator[T, None, None]:
        return Runner(self, self._http, self._duplex).run(flow)

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
        return self._run(
            text_calls.encode(
                self._session,
                text,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_to_numpy(
                self._session,
                text,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_batch(
                self._session,
                texts,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_batch_to_numpy(
                self._session,
                texts,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_segments(
                self._session,
                segments,
                add_special_tokens=add_special_tokens,
                added_tokens=added_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_segments_to_numpy(
                self._session,
                segments,
                add_special_tokens=add_special_tokens,
                added_tokens=added_tokens,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.encode_with_pieces(
                self._session,
                text,
                offset_unit=offset_unit,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
            )
        )

    def decode(
        self, ids: Ids, *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> str:
        """The text of token ids, given as a list or a numpy array of integers.

        Example:
            >>> client.decode(client.encode_to_numpy("low, lower"))
            'low, lower'
        """
        return self._run(
            text_calls.decode(
                self._session, ids, skip_special_tokens=skip_special_tokens, errors=errors
            )
        )

    def decode_bytes(
        self, ids: Ids, *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> bytes:
        """The bytes of token ids, which may be invalid UTF-8.

        Example:
            >>> client.decode_bytes(client.encode("é"))
            b'\\xc3\\xa9'
        """
        return self._run(
            text_calls.decode_bytes(
                self._session, ids, skip_special_tokens=skip_special_tokens, errors=errors
            )
        )

    def decode_batch(
        self, rows: Sequence[Ids], *, skip_special_tokens: bool = False, errors: Errors = "replace"
    ) -> list[str]:
        """The text of each of many lists of token ids, in one request.

        Example:
            >>> client.decode_batch(client.encode_batch(["low", "lower"]))
            ['low', 'lower']
        """
        return self._run(
            text_calls.decode_batch(
                self._session, rows, skip_special_tokens=skip_special_tokens, errors=errors
            )
        )

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
        return self._run(
            text_calls.count(
                self._session,
                text,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

    def count_segments(
        self, segments: Iterable[tuple[str, bool]], *, added_tokens: AddedTokens = "all"
    ) -> int:
        """The number of tokens of `encode_segments`; the service computes no ids.

        Example:
            >>> client.count_segments([("low", False)]) == client.count("low")
            True
        """
        return self._run(
            text_calls.count_segments(self._session, segments, added_tokens=added_tokens)
        )

    def count_batch(
        self,
        texts: Sequence[str],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> list[int]:
        """The number of tokens of each of many texts.

        Example:
            >>> client.count_batch(["low", ""])[1]
            0
        """
        return self._run(
            text_calls.count_batch(
                self._session,
                texts,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

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
        return self._run(
            chat_calls.encode_chat(
                self._session,
                messages,
                tools=tools,
                documents=documents,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=template_kwargs,
                added_tokens=added_tokens,
                messages_form=messages_form,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            chat_calls.encode_chat_to_numpy(
                self._session,
                messages,
                tools=tools,
                documents=documents,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=template_kwargs,
                added_tokens=added_tokens,
                messages_form=messages_form,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            chat_calls.encode_chat_with_mask(
                self._session,
                messages,
                loss_rule=loss_rule,
                turn_ends=turn_ends,
                tools=tools,
                documents=documents,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=template_kwargs,
                added_tokens=added_tokens,
                messages_form=messages_form,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            chat_calls.count_chat(
                self._session,
                messages,
                tools=tools,
                documents=documents,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=template_kwargs,
                added_tokens=added_tokens,
                messages_form=messages_form,
                max_tokens=max_tokens,
            )
        )

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
        return self._run(
            text_calls.fits(
                self._session,
                text,
                max_tokens,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

    def truncate(
        self,
        text: str,
        max_tokens: int,
        *,
        side: Literal["right", "left"] = "right",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> TruncateResponse:
        """The beginning of a text (`side="left"`: its end) of at most `max_tokens` tokens.

        Never cuts inside a character. `tokens` are the ids of the remaining text.

        Example:
            >>> client.truncate("low, lower", 1000).truncated
            False
        """
        return self._run(
            text_calls.truncate(
                self._session,
                text,
                max_tokens,
                side=side,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

    def chunk(
        self,
        text: str,
        max_tokens: int,
        *,
        overlap_tokens: int = 0,
        offset_unit: Literal["byte", "char"] = "byte",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> list[Chunk]:
        """A text in chunks of at most `max_tokens` tokens, each with its ids and its position.

        Example:
            >>> "".join(chunk.text for chunk in client.chunk("low, lower, lowest", 3))
            'low, lower, lowest'
        """
        return self._run(
            text_calls.chunk(
                self._session,
                text,
                max_tokens,
                overlap_tokens=overlap_tokens,
                offset_unit=offset_unit,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

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
        return self._run(
            text_calls.verify(
                self._session,
                text,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

    def verify_ids(self, ids: Ids) -> VerifyResponse:
        """Whether encoding the text of ids gives the ids, and where it first differs.

        Example:
            >>> client.verify_ids(client.encode("low, lower")).ok
            True
        """
        return self._run(text_calls.verify_ids(self._session, ids))

    def describe_token(self, token_id: int, *, depth: int = 8) -> VocabResponse:
        """One token: its bytes, its rank, and the tree of its merges, down to `depth`.

        Example:
            >>> client.describe_token(client.encode("a")[0]).text
            'a'
        """
        return self._run(text_calls.describe_token(self._session, token_id, depth=depth))

    def encode_stream(
        self,
        source: Given[str | bytes],
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
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
        return self._iterate(
            streams.encode_stream(
                self._session,
                source,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

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
        return self._iterate(
            streams.decode_stream(
                self._session,
                source,
                width=width,
                skip_special_tokens=skip_special_tokens,
                errors=errors,
            )
        )

    def encode_file(
        self,
        source: Given[str | bytes],
        output: os.PathLike[str] | str,
        *,
        width: Width = "u32",
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
    ) -> EncodedFile:
        """Write the ids of a text of any length to a file, raw and little-endian.

        `np.fromfile(output, np.uint32)` reads them (`width="u16"`: uint16). The file appears once
        it is complete.

        Raises:
            ValueError: `width="u16"`, and an id does not fit.
            StreamCutOffError, ProblemError: see `encode_stream`.
        """
        return self._run(
            streams.encode_file(
                self._session,
                source,
                output,
                width=width,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
            )
        )

    def info(self) -> InfoResponse:
        """The tokenizer that serves, its engine and the limits of the service.

        Example:
            >>> client.info().tokenizer.name
            'starter'
        """
        return self._run(service.info(self._session))

    def is_ready(self) -> bool:
        """Whether the service serves a tokenizer that passed its round trip; sends one request.

        Example:
            >>> client.is_ready()
            True
        """
        return self._run(service.is_ready(self._session))

    def wait_until_ready(self, *, deadline_seconds: float = 60.0) -> None:
        """Wait until the service is ready, for example while it starts.

        Raises:
            DeadlineExceededError: it was not ready within `deadline_seconds`.
        """
        return self._run(service.wait_until_ready(self._session, deadline_seconds=deadline_seconds))

    def train(
        self,
        *,
        corpus_ids: Sequence[str] | None = None,
        input_paths: Sequence[str] | None = None,
        input_urls: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
        format: FileFormat | None = None,  # noqa: A002 - the name of the field
        field: str | None = None,
        separator: str | None = None,
        skip_bad: bool | None = None,
        max_bad: float | None = None,
        vocab_size: int | None = None,
        special_tokens: Sequence[str] | None = None,
        name: str | None = None,
        pattern: str | None = None,
        min_frequency: int | None = None,
        max_token_length: int | None = None,
        seed_tokens: Sequence[str] | None = None,
        reserved: int | None = None,
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
        return self._run(
            jobs.train(
                self._session,
                idempotency_key=idempotency_key,
                wait=wait,
                on_progress=on_progress,
                corpus_ids=corpus_ids,
                input_paths=input_paths,
                input_urls=input_urls,
                documents=documents,
                format=format,
                field=field,
                separator=separator,
                skip_bad=skip_bad,
                max_bad=max_bad,
                vocab_size=vocab_size,
                special_tokens=special_tokens,
                name=name,
                pattern=pattern,
                min_frequency=min_frequency,
                max_token_length=max_token_length,
                seed_tokens=seed_tokens,
                reserved=reserved,
                pad_to_multiple=pad_to_multiple,
                promote=promote,
                limits=limits,
            )
        )


class JobResource:
    """`client.jobs`: the training and encoding jobs of the service."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self, *, kind: Literal["train", "encode"] | None = None, limit: int = 50
    ) -> JobSummaries:
        """The latest jobs, newest first."""
        return self._client._run(jobs.list_jobs(self._client._session, kind=kind, limit=limit))

    def get(self, job: JobOrId) -> AnyJobView:
        """One job: its state, its progress, and the end of its log."""
        return self._client._run(jobs.describe_job(self._client._session, id_of(job)))

    def cancel(self, job: JobOrId) -> AnyJobView:
        """Cancel a job and return it. Cancelling a job that has ended is not an error."""
        return self._client._run(jobs.cancel_job(self._client._session, id_of(job)))

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
            job
                does not change); the job continues.
            NotFoundError, ConnectionLostError, UnavailableError: see their classes.
        """
        return self._client._iterate(
            jobs.follow_job(
                self._client._session,
                id_of(job),
                deadline_seconds=deadline_seconds,
                patience_seconds=patience_seconds,
            )
        )

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
            DeadlineExceededError and others: see `follow_job`.
        """
        return self._client._run(
            jobs.wait_for_job(
                self._client._session,
                id_of(job),
                on_progress=on_progress,
                deadline_seconds=deadline_seconds,
                patience_seconds=patience_seconds,
            )
        )


class CorpusResource:
    """`client.corpora`: the uploaded corpora."""

    def __init__(self, client: Client) -> None:
        self._client = client

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
            InvalidRequestError: the text is not UTF-8 (`byte_offset` says where), or the file is
                not of the format.
        """
        return self._client._run(
            corpora.upload_corpus(
                self._client._session,
                corpus_id,
                source,
                replace=replace,
                format=format,
                field=field,
                on_progress=on_progress,
            )
        )

    def list(self) -> CorpusList:
        """The uploaded corpora, and their share of the quota."""
        return self._client._run(corpora.list_corpora(self._client._session))

    def get(self, corpus: CorpusOrId) -> Corpus:
        """One corpus: its size, its sha256 and its upload time."""
        return self._client._run(corpora.describe_corpus(self._client._session, id_of(corpus)))

    def remove(self, corpus: CorpusOrId) -> None:
        """Remove a corpus for good.

        Raises:
            ConflictError: an unfinished job uses it.
        """
        return self._client._run(corpora.remove_corpus(self._client._session, id_of(corpus)))

    def encode(
        self,
        corpus: CorpusOrId,
        *,
        allowed_special: AllowedSpecial = "all",
        disallowed_special: DisallowedSpecial = (),
        further_corpora: Sequence[str] | None = None,
        token_files_id: str | None = None,
        tokenizer: TokenizerOrName | None = None,
        format: Literal[FileFormat, "chat"] | None = None,  # noqa: A002 - the name of the field
        field: str | None = None,
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
        layout: Literal["raw", "npy", "megatron", "llmc"] | None = None,
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
        return self._client._run(
            jobs.encode_corpus(
                self._client._session,
                id_of(corpus),
                idempotency_key=idempotency_key,
                allowed_special=allowed_special,
                disallowed_special=disallowed_special,
                further_corpora=further_corpora,
                token_files_id=token_files_id,
                tokenizer=None if tokenizer is None else name_of(tokenizer),
                format=format,
                field=field,
                separator=separator,
                loss=loss,
                chat_template=chat_template,
                turn_ends=turn_ends,
                skip_bad=skip_bad,
                max_bad=max_bad,
                max_length=max_length,
                over_length=over_length,
                begin_of_document=begin_of_document,
                end_of_document=end_of_document,
                layout=layout,
                dtype=dtype,
                tokens_per_shard=tokens_per_shard,
                validation_share=validation_share,
                shuffle=shuffle,
                seed=seed,
                workers=workers,
                limits=limits,
            )
        )


class TokenizerResource:
    """`client.tokenizers`: the published tokenizers, and the active one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> TokenizersResponse:
        """Every published version, by name, newest first, and which is active.

        Example:
            >>> client.tokenizers.list().active.name
            'starter'
        """
        return self._client._run(service.list_tokenizers(self._client._session))

    def versions(self, name: str) -> Versions:
        """The versions of one tokenizer with their manifests, newest first.

        Example:
            >>> client.tokenizers.versions("starter")[0].active
            True
        """
        return self._client._run(service.describe_tokenizer(self._client._session, name))

    def active(self) -> TokenizerSummary:
        """The tokenizer for requests that name none; pin it by its `digest`.

        Example:
            >>> client.tokenizers.active().name
            'starter'
        """
        return self._client._run(service.active_tokenizer(self._client._session))

    def file(self, tokenizer: TokenizerOrName, file: str) -> bytes:
        """A version as a file for other programs: `tokenizer.json`, `vocab.pkl`, ...

        Example:
            >>> active = client.tokenizers.active()
            >>> client.tokenizers.file(f"{active.name}@{active.version}", "tokenizer.json")[:1]
            b'{'
        """
        return self._client._run(
            service.tokenizer_file(self._client._session, name_of(tokenizer), file)
        )

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
        return self._client._run(
            service.promote(self._client._session, name_of(tokenizer), if_match=if_match)
        )

    def roll_back(self, promotion: PromoteResponse) -> PromoteResponse:
        """Undo a promotion: make the previously active tokenizer active again.

        Raises:
            DigestMismatchError: a later promotion made another tokenizer active; it stays active.
            ValueError: no tokenizer was active before.
        """
        return self._client._run(service.roll_back(self._client._session, promotion))

    def remove(self, tokenizer: TokenizerOrName) -> None:
        """Remove a version (`name@version`) for good.

        Raises:
            ConflictError: the version is in use.
        """
        return self._client._run(service.remove_version(self._client._session, name_of(tokenizer)))

    def models(self) -> ModelsResponse:
        """The names and aliases that `model` may be in requests of other servers' clients.

        Example:
            >>> client.tokenizers.models().data[0].id
            'starter'
        """
        return self._client._run(service.list_models(self._client._session))

    def add_alias(self, alias: str, name: str) -> ModelResponse:
        """Let such requests name the tokenizer `name` as `alias`: 1 to 200 printable ASCII
        characters.

        Raises:
            ConflictError: the alias belongs to another tokenizer, or is a tokenizer's name.
            NotFoundError: there is no such tokenizer.
        """
        return self._client._run(service.add_alias(self._client._session, alias, name))

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; its tokenizer stays."""
        return self._client._run(service.remove_alias(self._client._session, alias))


class TokenFileResource:
    """`client.token_files`: the encoded corpora."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> TokenFilesList:
        """All token files, and their size."""
        return self._client._run(corpora.list_token_files(self._client._session))

    def get(self, token_files: TokenFilesOrId) -> TokenFilesView:
        """Token files: their tokenizer, corpora, splits and each file."""
        return self._client._run(
            corpora.describe_token_files(self._client._session, id_of(token_files))
        )

    def remove(self, token_files: TokenFilesOrId) -> None:
        """Remove token files for good."""
        return self._client._run(
            corpora.remove_token_files(self._client._session, id_of(token_files))
        )

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
        return self._client._run(
            corpora.download_token_files(
                self._client._session, id_of(token_files), folder, on_progress=on_progress
            )
        )
