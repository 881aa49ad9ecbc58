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
from tokenizer_service.responses.json_values import Rendered, dump, render_each
from tokenizer_service.serving.live_tokenizer import LiveTokenizer


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

    prompt_ids: NDArray[np.uint32] | None = None
    """Those of the generated response, if this one has them."""
    logprobs: list[bytes] | None = None
    """As JSON."""

    def render(self, fields: dict[str, Any]) -> list[bytes]:
        """A choice: its number, `fields`, and what every choice has."""
        shown = {
            "index": self.number,
            **fields,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "token_ids": _listed(self.token_ids),
        }
        logprobs = [b"null"] if self.logprobs is None else self.logprobs
        return [dump(shown)[:-1], b',"logprobs":', *logprobs, b"}"]

    def render_text(self) -> list[bytes]:
        """A choice of a completion, or of a chunk of one."""
        return self.render({"text": self.content, "prompt_token_ids": _listed(self.prompt_ids)})

    def delta(self, request_id: str) -> dict[str, Any]:
        """The message of a chunk of a chat completion."""
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if self.is_first else {}
        if self.content:
            delta["content"] = self.content
        if self.reasoning:
            delta["reasoning"] = self.reasoning
        if self.calls:
            delta["tool_calls"] = self.tool_calls(request_id)
        return delta

    def tool_calls(self, request_id: str) -> list[dict[str, Any]]:
        """The calls, each with an id that depends on the request and its number."""
        numbered = enumerate(self.calls, self.n_calls_before)
        seed = f"{request_id} {self.number}"
        return [
            {
                "id": f"call_{sha256(f'{seed} {number}'.encode()).hexdigest()[:24]}",
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
        choices.append(output.render({"message": message}))
    fields = {
        **_head(response, "chat.completion", model, live),
        "usage": _usage(outputs, n_prompt),
        "prompt_logprobs": response.prompt_logprobs,
        "prompt_token_ids": _listed(outputs[0].prompt_ids) if outputs else None,
        **_carried([response]),
    }
    return _rendered(fields, choices, outputs)


def render_completion(
    responses: list[Generated],
    outputs: list[Output],
    n_prompt: int,
    model: str | None,
    live: LiveTokenizer,
) -> Rendered:
    """A completion, of a response for each prompt."""
    fields = {
        **_head(responses[0], "text_completion", model, live),
        "usage": _usage(outputs, n_prompt),
        **_carried(responses),
    }
    return _rendered(fields, [output.render_text() for output in outputs], outputs)


def render_chunk(
    chunk: Generated,
    output: Output | None,
    n_prompt: int | None,
    state: dict[str, Any] | None,
    model: str | None,
    live: LiveTokenizer,
    *,
    is_chat: bool,
) -> Rendered:
    """A chunk of a chat completion or of a completion, and the state of its stream. `n_prompt`
    replaces the number of tokens of the prompt."""
    fields = _head(chunk, "chat.completion.chunk" if is_chat else "text_completion", model, live)
    fields["usage"] = _chunk_usage(chunk, n_prompt)
    if is_chat:
        fields["prompt_token_ids"] = _listed(output.prompt_ids) if output else None
    outputs = [] if output is None else [output]
    choices = [
        one.render({"delta": one.delta(chunk.request_id)}) if is_chat else one.render_text()
        for one in outputs
    ]
    found = _rendered({**fields, **_carried([chunk])}, choices, outputs)
    chunks = [b'{"chunk":', *found.chunks, b',"stream_state":%b}' % dump(state)]
    return found._replace(chunks=chunks)


def _head(response: Generated, kind: str, model: str | None, live: LiveTokenizer) -> dict[str, Any]:
    created, model = int(time.time()), model or live.ref.name
    return {"id": response.request_id, "object": kind, "created": created, "model": model}


def _usage(outputs: list[Output], n_prompt: int) -> dict[str, int]:
    n_tokens = sum(output.n_tokens for output in outputs)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_tokens,
        "total_tokens": n_prompt + n_tokens,
    }


def _chunk_usage(chunk: Generated, n_prompt: int | None) -> dict[str, Any] | None:
    if chunk.usage is None:
        return None
    given = chunk.usage.model_dump(exclude_unset=True)
    if n_prompt is None:
        return given
    total = n_prompt + (chunk.usage.completion_tokens or 0)
    return {**given, "prompt_tokens": n_prompt, "total_tokens": total}


def _carried(responses: list[Generated]) -> dict[str, Any]:
    """What comes from the server that generated, where the responses agree. Measurements are of
    one prompt."""
    first = responses[0]
    carried: dict[str, Any] = {}
    for name in ("kv_transfer_params", "ec_transfer_params"):
        value = getattr(first, name)
        carried[name] = value if all(getattr(one, name) == value for one in responses) else None
    return {**carried, "metrics": first.metrics if len(responses) == 1 else None}


def _listed(ids: NDArray[np.uint32] | None) -> list[int] | None:
    return None if ids is None else ids.tolist()


def _rendered(
    fields: dict[str, Any], choices: list[list[bytes]], outputs: list[Output]
) -> Rendered:
    chunks = [
        dump(fields)[:-1],
        b',"choices":',
        *render_each(map(iter, choices), is_batch=True),
        b"}",
    ]
    return Rendered(chunks, sum(output.n_tokens for output in outputs))
