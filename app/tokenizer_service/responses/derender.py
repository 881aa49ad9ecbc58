"""Outputs as OpenAI's API returns them: chat completions, completions, and their chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.schemas.derender import Generated
from tokenizer_core.chat.outputs import Call
from tokenizer_service.responses.json_values import Rendered, dump
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

State = dict[str, Any] | None


class Output(NamedTuple):
    """One output, or a part of it."""

    number: int
    content: str
    reasoning: str
    calls: Sequence[Call]
    n_calls_before: int
    finish_reason: str | None
    stop_reason: int | str | None
    n_tokens: int
    token_ids: NDArray[np.uint32] | None
    """If the response has them."""
    is_first: bool = True

    def end(self) -> dict[str, Any]:
        """The fields of a choice after its text."""
        return {
            "logprobs": None,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "token_ids": None if self.token_ids is None else self.token_ids.tolist(),
        }

    def tool_calls(self, request_id: str) -> list[dict[str, Any]]:
        """The calls, each with an id that depends on the request and its number."""
        numbered = enumerate(self.calls, self.n_calls_before)
        return [
            {
                "id": _call_id(f"{request_id} {self.number} {number}"),
                "type": "function",
                "index": number,
                "function": call._asdict(),
            }
            for number, call in numbered
        ]


def render_chat_completion(
    response: Generated,
    outputs: list[Output],
    n_prompt: int,
    model: str | None,
    live: LiveTokenizer,
) -> Rendered:
    """A chat completion."""
    choices = []
    for output in outputs:
        calls = output.tool_calls(response.request_id)
        for call in calls:
            del call["index"]
        is_empty = not output.content and (calls or output.reasoning)
        message = {
            "role": "assistant",
            "content": None if is_empty else output.content,
            "reasoning": output.reasoning or None,
            **({"tool_calls": calls} if calls else {}),
        }
        choices.append({"index": output.number, "message": message, **output.end()})
    fields = {
        "id": response.request_id,
        "object": "chat.completion",
        **_identity(model, live),
        "choices": choices,
        "usage": _usage(outputs, n_prompt),
        "prompt_logprobs": response.prompt_logprobs,
        **_carried(response),
    }
    return _rendered(fields, outputs)


def render_completion(
    response: Generated,
    outputs: list[Output],
    n_prompt: int,
    model: str | None,
    live: LiveTokenizer,
) -> Rendered:
    """A completion; `response` is the first of its prompts."""
    fields = {
        "id": response.request_id,
        "object": "text_completion",
        **_identity(model, live),
        "choices": [{"index": o.number, "text": o.content, **o.end()} for o in outputs],
        "usage": _usage(outputs, n_prompt),
        **_carried(response),
    }
    return _rendered(fields, outputs)


def render_chat_chunk(
    chunk: Generated, output: Output | None, state: State, model: str | None, live: LiveTokenizer
) -> Rendered:
    """A chunk of a chat completion, and the state of its stream."""
    choices = []
    if output is not None:
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if output.is_first else {}
        if output.content:
            delta["content"] = output.content
        if output.reasoning:
            delta["reasoning"] = output.reasoning
        if output.calls:
            delta["tool_calls"] = output.tool_calls(chunk.request_id)
        choices = [{"index": output.number, "delta": delta, **output.end()}]
    return _render_chunk("chat.completion.chunk", chunk, choices, output, state, model, live)


def render_completion_chunk(
    chunk: Generated, output: Output | None, state: State, model: str | None, live: LiveTokenizer
) -> Rendered:
    """A chunk of a completion, and the state of its stream."""
    choices = []
    if output is not None:
        choices = [{"index": output.number, "text": output.content, **output.end()}]
    return _render_chunk("text_completion", chunk, choices, output, state, model, live)


def _render_chunk(
    kind: str,
    chunk: Generated,
    choices: list[dict[str, Any]],
    output: Output | None,
    state: State,
    model: str | None,
    live: LiveTokenizer,
) -> Rendered:
    fields = {
        "id": chunk.request_id,
        "object": kind,
        **_identity(model, live),
        "choices": choices,
        "usage": chunk.usage,
        **_carried(chunk),
    }
    return _rendered({"chunk": fields, "stream_state": state}, [] if output is None else [output])


def _identity(model: str | None, live: LiveTokenizer) -> dict[str, Any]:
    return {"created": int(time.time()), "model": model or live.ref.name}


def _usage(outputs: list[Output], n_prompt: int) -> dict[str, int]:
    n_tokens = sum(output.n_tokens for output in outputs)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_tokens,
        "total_tokens": n_prompt + n_tokens,
    }


def _carried(response: Generated) -> dict[str, Any]:
    names = ("kv_transfer_params", "ec_transfer_params", "metrics")
    return {name: getattr(response, name) for name in names}


def _call_id(seed: str) -> str:
    return f"call_{sha256(seed.encode()).hexdigest()[:24]}"


def _rendered(fields: dict[str, Any], outputs: list[Output]) -> Rendered:
    return Rendered([dump(fields)], sum(output.n_tokens for output in outputs))
