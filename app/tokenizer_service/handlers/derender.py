"""Generated ids to what OpenAI's API returns: /chat/completions/derender, /completions/derender."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from tokenizer_client.schemas.derender import (
    MAX_CONTEXT,
    MAX_STATE_BYTES,
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    Generated,
    GeneratedChoice,
    StreamState,
)
from tokenizer_core.chat.messages import refuse
from tokenizer_core.chat.outputs import FORMATS, Call, OutputFormat, Part
from tokenizer_core.engines import EngineChoice
from tokenizer_core.errors import OutputTooLongError
from tokenizer_core.text.output_streams import (
    OutputState,
    StopStrings,
    begin_output,
    continue_output,
)
from tokenizer_service.access.work_queue import check_not_abandoned
from tokenizer_service.handlers.conversations import require_shallow
from tokenizer_service.handlers.known_fields import validate_borrowed, without_nulls
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.decode import Row, check_decoded_size
from tokenizer_service.responses.derender import (
    Output,
    render_chat_completion,
    render_chunk,
    render_completion,
)
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.responses.logprobs import LogprobTexts
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

StreamRequest = DerenderChatStreamRequest | DerenderCompletionStreamRequest
WholeRequest = DerenderChatRequest | DerenderCompletionRequest

_STATE: Final = "/stream_state"


class _Reading(NamedTuple):
    """How the outputs of a request are read."""

    parser: str | None
    form: OutputFormat | None
    options: dict[str, Any]
    """The chat completion or completion, as far as it was sent."""
    place: str
    """JSON pointer of it."""

    @property
    def with_calls(self) -> bool:
        """Whether calls are calls: not where the chat completion offers no tools."""
        is_offered = bool(self.options.get("tools")) and self.options.get("tool_choice") != "none"
        return is_offered or not self.options

    @property
    def is_chat(self) -> bool:
        """Whether the outputs are those of a chat completion."""
        return self.place == "/chat_request"

    @property
    def hides(self) -> bool:
        """Whether reasoning is left out, and with it all that would reveal it."""
        return self.form is not None and not self.flag("include_reasoning", default=True)

    @property
    def n_candidates(self) -> int | None:
        """How many log probabilities of a position the response has, as vLLM counts; None: all."""
        is_wanted = self.flag("logprobs", default=False) if self.is_chat else True
        number = self.number("top_logprobs" if self.is_chat else "logprobs")
        if not is_wanted or number == -1 or self.options.get("logprob_token_ids"):
            return None
        if self.is_chat:
            return number or 0
        return None if number is None else number + 1

    @property
    def keeps_stop(self) -> bool:
        """Whether the text has what ended the output."""
        return self.flag("include_stop_str_in_output", default=False)

    def flag(self, name: str, *, default: bool) -> bool:
        """An option that is true or false."""
        value = self.options.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            refuse(f"{self.place}/{name}", "must be true or false")
        return value

    def number(self, name: str) -> int | None:
        """An option that is a number from -1."""
        value = self.options.get(name)
        if value is not None and (type(value) is not int or value < -1):
            refuse(f"{self.place}/{name}", "must be a number")
        return value

    def list_of(self, name: str, kind: type) -> list[Any]:
        """An option that is a list of `kind`, or one of them."""
        value = self.options.get(name)
        given = [] if value is None else value if isinstance(value, list) else [value]
        if any(type(one) is not kind for one in given):
            refuse(f"{self.place}/{name}", "has a value of a wrong type")
        return given


def parse_derender(
    body: bytes, engine: EngineChoice, *, whole: type[BaseModel], stream: type[BaseModel]
) -> Any:
    """Parse a request, which is a `stream` if it says so; raises Problem."""
    value = without_nulls(parse_body_json(body, engine))
    require_shallow(value)
    is_stream = isinstance(value, dict) and value.get("stream") is True
    if is_stream and len(json.dumps(value.get("stream_state"))) > MAX_STATE_BYTES:
        refuse(_STATE, f"has more than {MAX_STATE_BYTES} bytes")
    return validate_borrowed(value, stream if is_stream else whole)


def derender(
    request: WholeRequest | StreamRequest, live: LiveTokenizer, *, max_decoded_bytes: int
) -> Rendered:
    """Make the response, or the next chunk of it."""
    reading = _reading_of(request, live)
    if isinstance(request, DerenderChatStreamRequest | DerenderCompletionStreamRequest):
        return _derender_part(request, reading, live, max_decoded_bytes)
    given: list[Any]
    counts: list[int | None]
    if is_chat := isinstance(request, DerenderChatRequest):
        responses = [(request.generate_response, "/generate_response")]
        given, counts = [request.prompt_token_ids], [request.prompt_tokens]
    else:
        responses = [
            (response, f"/generate_responses/{index}")
            for index, response in enumerate(request.generate_responses)
        ]
        given = _for_each(request.prompt_token_ids, len(responses), "/prompt_token_ids")
        counts = _for_each(request.prompt_tokens, len(responses), "/prompt_tokens")
    rows: list[Row] = []
    prompts = []
    for index, (response, place) in enumerate(responses):
        prompt, known = _prompt_of(given[index], "" if is_chat else f"/{index}", response, place)
        prompts.append(prompt)
        rows += [*known, *_rows_of(response, place)]
    check_decoded_size(rows, live, max_decoded_bytes)
    outputs: list[Output] = []
    texts = LogprobTexts(live, reading.n_candidates, max_decoded_bytes)
    for (response, place), prompt in zip(responses, prompts, strict=True):
        begin = None
        if prompt is not None:
            begin = begin_output(live.tokenizer, reading.form, prompt.tolist())
        for number, given_choice in enumerate(response.choices):
            check_not_abandoned()
            if given_choice.token_ids is None or not len(given_choice.token_ids):
                refuse(f"{place}/choices/{number}/token_ids", "has no ids")
            reason = given_choice.finish_reason or "stop"
            choice = given_choice.model_copy(update={"finish_reason": reason})
            parts = _read_whole(choice, begin, reading, live)
            index = choice.index if is_chat else len(outputs)
            output = _output_of(choice, index, parts, reading, response)
            outputs.append(_with_logprobs(output, choice, texts, reading)[0])
    n_prompt = sum(
        (0 if prompt is None else len(prompt)) if count is None else count
        for prompt, count in zip(prompts, counts, strict=True)
    )
    every = [response for response, _ in responses]
    if is_chat:
        return render_chat_completion(every[0], outputs, n_prompt, request.model, live)
    return render_completion(every, outputs, n_prompt, request.model, live)


def _reading_of(request: WholeRequest | StreamRequest, live: LiveTokenizer) -> _Reading:
    if isinstance(request, DerenderCompletionRequest | DerenderCompletionStreamRequest):
        return _Reading(None, None, request.completion_request or {}, "/completion_request")
    parser = request.parser or live.tokenizer.spec.chat.output_parser
    form = None if parser is None else FORMATS[parser]
    return _Reading(parser, form, request.chat_request or {}, "/chat_request")


def _for_each(given: list[Any] | None, n_wanted: int, pointer: str) -> list[Any]:
    if given is not None and len(given) != n_wanted:
        refuse(pointer, "must have one entry for each of generate_responses")
    return [None] * n_wanted if given is None else [*given]


def _prompt_of(
    given: Any, where: str, response: Generated, place: str
) -> tuple[NDArray[np.uint32] | None, list[Row]]:
    """The ids of a prompt, if it is known, and where they are in the request."""
    pointer = f"/prompt_token_ids{where}"
    if given is None:
        given, pointer = response.prompt_token_ids, f"{place}/prompt_token_ids"
    return given, [] if given is None else [(given, pointer)]


def _rows_of(response: Generated, place: str) -> list[Row]:
    return [
        (choice.token_ids, f"{place}/choices/{index}/token_ids")
        for index, choice in enumerate(response.choices)
        if choice.token_ids is not None
    ]


def _ids_of(choice: GeneratedChoice, reading: _Reading, live: LiveTokenizer) -> list[int]:
    """The ids of an output, or of a part, without the token that ended it."""
    ids: list[int] = [] if choice.token_ids is None else choice.token_ids.tolist()
    if not ids or choice.finish_reason != "stop" or reading.keeps_stop:
        return ids
    ends = {choice.stop_reason}
    if choice.stop_reason is None:
        spec = live.tokenizer.spec
        ends = {*reading.list_of("stop_token_ids", int)}
        if not reading.flag("ignore_eos", default=False):
            ends |= {spec.special_tokens.get(token) for token in spec.chat.turn_ends}
    return ids[:-1] if ids[-1] in ends else ids


def _with_text(ids: list[int], reading: _Reading, live: LiveTokenizer) -> list[int]:
    """The ids whose text counts: without special tokens that are no marks of the parser."""
    if not reading.flag("skip_special_tokens", default=True) and reading.form is None:
        return ids
    marks = reading.form.marks if reading.form else frozenset()
    special = live.tokenizer.spec.special_tokens
    skipped = {id_ for token, id_ in special.items() if token not in marks}
    return [id_ for id_ in ids if id_ not in skipped]


def _read_whole(
    choice: GeneratedChoice, begin: OutputState | None, reading: _Reading, live: LiveTokenizer
) -> list[Part | Call]:
    reason, strings = choice.stop_reason, reading.list_of("stop", str)
    if choice.finish_reason != "stop" or isinstance(reason, int):
        strings = []
    elif reason is not None:
        strings = [reason]
    ids = _ids_of(choice, reading, live)
    n_free = None
    if reading.options:
        n_free = len(_with_text(ids[: max(0, reading.number("min_tokens") or 0)], reading, live))
    ids = _with_text(ids, reading, live)
    parts, _ = continue_output(
        live.tokenizer,
        reading.form,
        _begin_without_prompt(ids, choice, reading, live) if begin is None else begin,
        ids,
        is_last=True,
        stop=StopStrings([one for one in strings if one], n_free, reading.keeps_stop),
        with_calls=reading.with_calls,
    )
    return parts


def _begin_without_prompt(
    ids: list[int], choice: GeneratedChoice, reading: _Reading, live: LiveTokenizer
) -> OutputState:
    """The state of an output after an unknown prompt, which opened reasoning if the output closes
    it before it opens any. An output that was cut before it does either may be both."""
    marks = reading.form and reading.form.reasoning_marks
    if marks:
        before, end, _ = live.tokenizer.engine.decode(ids, "replace").partition(marks[1])
        is_open = marks[0] in before
        if end and not is_open:
            return OutputState("reasoning")
        if not end and not is_open and choice.finish_reason != "stop":
            refuse("/prompt_token_ids", "is needed here: the output was cut, perhaps in reasoning")
    return OutputState()


def _with_logprobs(
    output: Output,
    choice: GeneratedChoice,
    texts: LogprobTexts,
    reading: _Reading,
    state: StreamState | None = None,
) -> tuple[Output, dict[str, Any]]:
    """`output` with the log probabilities of its ids, and what the state of a stream keeps."""
    last, n_chars = ([], 0) if state is None else (state.last, state.n_chars)
    ids = [] if choice.token_ids is None else choice.token_ids.tolist()
    kept = {"last": [*last, *ids][-MAX_CONTEXT:], "n_chars": n_chars + len(output.content)}
    if choice.logprobs is None or reading.hides:
        return output, kept
    render = texts.chat if reading.is_chat else texts.completion
    shown = render(choice.logprobs, last, n_chars)
    if choice.logprobs.content:
        kept["n_chars"] = shown.n_chars
    return output._replace(logprobs=shown.rendered), kept


def _derender_part(
    request: StreamRequest, reading: _Reading, live: LiveTokenizer, max_decoded_bytes: int
) -> Rendered:
    chunk, state = request.generate_chunk, request.stream_state
    reason = "cannot cut text that was sent before; derender the whole output, without stream"
    if reading.options.get("stop"):
        refuse(f"{reading.place}/stop", reason)
    if not reading.keeps_stop and any(isinstance(one.stop_reason, str) for one in chunk.choices):
        refuse("/generate_chunk/choices/0/stop_reason", reason)
    if len(chunk.choices) > 1:
        refuse("/generate_chunk/choices", "must be one choice; keep a state for each")
    render = partial(render_chunk, is_chat=reading.is_chat)
    prompt, rows = _prompt_of(request.prompt_token_ids, "", chunk, "/generate_chunk")
    needs_prompt = chunk.choices and reading.form and reading.form.reasoning_marks
    if needs_prompt and prompt is None and state is None:
        refuse("/prompt_token_ids", "is needed here: its end may begin the reasoning")
    rows += _rows_of(chunk, "/generate_chunk")
    if state is not None:
        _check_state(state, request, reading, live)
        for name, ids in (("held", state.held), ("last", state.last)):
            rows.append((np.array(ids, dtype=np.uint32), f"{_STATE}/{name}"))
    check_decoded_size(rows, live, max_decoded_bytes)
    if not chunk.choices:
        next_state = None if state is None else state.model_dump()
        return render(chunk, None, request.prompt_tokens, next_state, request.model, live)
    [choice] = chunk.choices
    n_calls = 0
    if state is None:
        ids = [] if prompt is None else prompt.tolist()
        before = begin_output(live.tokenizer, reading.form, ids)
    else:
        before = OutputState(state.mode, tuple(state.held), state.n_given, state.is_first)
        n_calls = state.n_calls
    parts, after = continue_output(
        live.tokenizer,
        reading.form,
        before,
        _with_text(_ids_of(choice, reading, live), reading, live),
        is_last=choice.finish_reason is not None,
        with_calls=reading.with_calls,
    )
    output = _output_of(choice, choice.index, parts, reading, chunk, n_calls)
    output = output._replace(is_first=state is None)
    texts = LogprobTexts(live, reading.n_candidates, max_decoded_bytes)
    output, kept = _with_logprobs(output, choice, texts, reading, state)
    fields = {
        "version": 1,
        "tokenizer": str(live.ref),
        "parser": reading.parser,
        "index": choice.index,
        "mode": after.mode,
        "held": list(after.held),
        "n_given": after.n_given,
        "is_first": after.is_first,
        "n_calls": n_calls + len(output.calls),
        **kept,
    }
    next_state = {**fields, "digest": _digest(fields)}
    if len(json.dumps(next_state)) > MAX_STATE_BYTES:
        raise OutputTooLongError(
            f"the state of the stream would have more than {MAX_STATE_BYTES} bytes; derender the "
            f"whole output, without stream"
        )
    return render(chunk, output, request.prompt_tokens, next_state, request.model, live)


def _check_state(
    state: StreamState, request: StreamRequest, reading: _Reading, live: LiveTokenizer
) -> None:
    """Raise Problem for a state that this stream did not get."""
    if state.tokenizer != str(live.ref):
        detail = (
            "The stream was begun with another tokenizer than the one that reads it now. Name that "
            "version in `tokenizer`, or begin again without a state."
        )
        raise Problem(
            409, "other_tokenizer", detail, errors=[(f"{_STATE}/tokenizer", "is another one")]
        )
    if state.digest != _digest(state.model_dump(exclude={"digest"})):
        refuse(f"{_STATE}/digest", "does not fit the state: send the state as it was returned")
    if state.parser != reading.parser:
        refuse(f"{_STATE}/parser", "is another one than that of the request")
    if any(choice.index != state.index for choice in request.generate_chunk.choices):
        refuse(f"{_STATE}/index", "is that of another choice")


def _digest(fields: dict[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]


def _output_of(
    choice: GeneratedChoice,
    index: int,
    parts: Sequence[Part | Call],
    reading: _Reading,
    response: Generated,
    n_calls: int = 0,
) -> Output:
    def text_of(kind: str) -> str:
        return "".join(p.text for p in parts if isinstance(p, Part) and p.kind == kind)

    calls = [part for part in parts if isinstance(part, Call)]
    # After a call of the one tool that was named, the output just stops.
    is_forced = isinstance(reading.options.get("tool_choice"), dict)
    reason = choice.finish_reason
    if reason == "stop" and n_calls + len(calls) and not is_forced:
        reason = "tool_calls"
    returns_ids = reading.flag("return_token_ids", default=False)
    ids = choice.token_ids if choice.token_ids is not None else np.empty(0, dtype=np.uint32)
    return Output(
        index,
        text_of("content"),
        "" if reading.hides else text_of("reasoning"),
        calls,
        n_calls,
        reason,
        choice.stop_reason,
        len(ids),
        ids if returns_ids and not reading.hides else None,
        prompt_ids=response.prompt_token_ids if returns_ids else None,
    )
