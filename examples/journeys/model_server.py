"""A model server that knows no text: this service renders its prompts and reads its outputs.

    TOKENIZER_URL=http://127.0.0.1:8000 \
        uvicorn model_server:app --app-dir examples/journeys --port 9000

It takes OpenAI's chat completions and completions as they are. Where a model would generate,
`generate` repeats the end of the prompt. docs/render.md says what to put in its place.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response

KEY = os.environ.get("TOKENIZER_API_KEY")
app = FastAPI()
service = httpx.AsyncClient(
    base_url=os.environ.get("TOKENIZER_URL", "http://127.0.0.1:8000"),
    headers={"Authorization": f"Bearer {KEY}"} if KEY else {},
    timeout=60,
)


@app.post("/v1/chat/completions")
async def chat_completion(request: Request) -> dict[str, Any]:
    """Render, generate, derender."""
    body = await request.json()
    rendered = await ask("/v1/chat/completions/render", body)
    prompt = rendered.json()
    sent = {
        # Another version may be promoted meanwhile: its ids would have another text.
        "tokenizer": rendered.headers["tokenizer-version"],
        "chat_request": body,
        "generate_response": generate(prompt),
        "prompt_tokens": len(prompt["token_ids"]),
        "prompt_token_ids": prompt["token_ids"],
    }
    return (await ask("/v1/chat/completions/derender", sent)).json()


@app.post("/v1/completions")
async def completion(request: Request) -> dict[str, Any]:
    """The same without a chat template; a request may have several prompts."""
    body = await request.json()
    rendered = await ask("/v1/completions/render", body)
    prompts = rendered.json()
    sent = {
        "tokenizer": rendered.headers["tokenizer-version"],
        "completion_request": body,
        "generate_responses": [generate(prompt) for prompt in prompts],
        "prompt_tokens": [len(prompt["token_ids"]) for prompt in prompts],
        "prompt_token_ids": [prompt["token_ids"] for prompt in prompts],
    }
    return (await ask("/v1/completions/derender", sent)).json()


async def ask(path: str, body: dict[str, Any]) -> httpx.Response:
    """Post to the service."""
    return (await service.post(path, json=body)).raise_for_status()


@app.exception_handler(httpx.HTTPStatusError)
async def pass_on(_: Request, error: httpx.HTTPStatusError) -> Response:
    """The service's errors have the shape that the client expects."""
    answer = error.response
    return Response(answer.content, answer.status_code, media_type=answer.headers["content-type"])


def generate(prompt: dict[str, Any]) -> dict[str, Any]:
    """What the model's `/inference/v1/generate` would return for a rendered prompt."""
    n_tokens = min(prompt["sampling_params"].get("max_tokens", 16), 16)
    ids = prompt["token_ids"][-n_tokens:]
    choice = {"index": 0, "token_ids": ids, "finish_reason": "length"}
    return {"request_id": prompt["request_id"], "choices": [choice]}
