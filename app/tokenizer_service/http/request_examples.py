"""The requests that the OpenAPI document shows, by name; a test sends each of them.

They are in one module because readers of `/docs` try them first. Plain data.
"""

from __future__ import annotations

from typing import Any, Final

Examples = dict[str, dict[str, Any]]


def _example(summary: str, **value: Any) -> dict[str, Any]:
    return {"summary": summary, "value": value}


_HELLO: Final = [{"role": "user", "content": "Hello"}]

REQUEST_EXAMPLES: Final[dict[str, Examples]] = {
    "EncodeRequest": {
        "text": _example("One text", text="Hello, world!"),
        "pieces": _example(
            "Several texts, with pieces and offsets",
            **{"text": ["a naïve text", "<|endoftext|>"], "return": ["ids", "pieces", "offsets"]},
        ),
        "untrusted": _example(
            "Untrusted text: special tokens are plain text",
            text="<|endoftext|> is no end here",
            allowed_special="none",
        ),
        "segments": _example(
            "A prompt: special tokens count in trusted segments only",
            segments=[
                {"text": "<|endoftext|>", "special": True},
                {"text": "typed by a user: <|endoftext|>", "special": False},
            ],
        ),
        "limit": _example("A limit on tokens; over it, 413", text="Hello, world!", max_tokens=16),
    },
    "DecodeRequest": {
        "ids": _example("One list of ids", tokens=[72, 101, 108, 108, 111]),
        "batch": _example("Several, without special tokens", tokens=[[72], [105, 33]]),
    },
    "IdsRequest": {"inference": _example("As text-embeddings-inference asks", ids=[72, 105])},
    "DerenderChatRequest": {
        "output": _example(
            "A whole output",
            generate_response={
                "request_id": "chatcmpl-1",
                "choices": [{"index": 0, "token_ids": [72, 105], "finish_reason": "stop"}],
            },
            parser="qwen3",
        )
    },
    "DerenderChatStreamRequest": {
        "first": _example(
            "The first part of an output",
            stream=True,
            generate_chunk={
                "request_id": "chatcmpl-1",
                "choices": [{"index": 0, "token_ids": [72]}],
            },
        )
    },
    "DerenderCompletionRequest": {
        "outputs": _example(
            "The output for each prompt",
            generate_responses=[
                {"request_id": "cmpl-1", "choices": [{"index": 0, "token_ids": [72, 105]}]}
            ],
        )
    },
    "DerenderCompletionStreamRequest": {
        "part": _example(
            "The first part",
            stream=True,
            generate_chunk={"request_id": "cmpl-1", "choices": [{"index": 0, "token_ids": [72]}]},
        )
    },
    "ExtendRequest": {
        "text": _example(
            "The output of a tool after ids that stay",
            tokens=[72, 105],
            mask=[0, 1],
            text="done",
            allowed_special="none",
        )
    },
    "ExtendChatRequest": {
        "messages": _example(
            "The first messages of a conversation",
            tokens=[],
            messages=_HELLO,
            add_generation_prompt=True,
        )
    },
    "ExtendBatchRequest": {
        "texts": _example("Several", batch=[{"tokens": [72, 105], "text": " there"}])
    },
    "ExtendChatBatchRequest": {
        "conversations": _example(
            "Several conversations", batch=[{"tokens": [], "messages": _HELLO}]
        )
    },
    "CountRequest": {
        "text": _example("Count the tokens of a text", text="Hello, world!"),
        "segments": _example(
            "Count the tokens of a prompt",
            segments=[
                {"text": "<|endoftext|>", "special": True},
                {"text": "Hello", "special": False},
            ],
        ),
        "limit": _example("Whether it fits", text=["Hello", "world"], limit=1),
    },
    "TruncateRequest": {
        "beginning": _example("Keep the beginning", text="Hello, world!", max_tokens=2),
        "end": _example("Keep the end", text="Hello, world!", max_tokens=2, side="left"),
    },
    "ChunkRequest": {
        "overlap": _example(
            "Chunks that overlap", text="one two three four", max_tokens=3, overlap_tokens=1
        )
    },
    "AlignRequest": {
        "other": _example("With another tokenizer", text="low, lower", other="starter")
    },
    "VerifyRequest": {
        "text": _example("Check that a text survives encoding and decoding", text="naïve café 🙂"),
        "ids": _example("Do the ids?", tokens=[72, 101, 108, 108, 111]),
    },
    "MergesRequest": {"tokens": _example("How were they merged?", tokens=[97, 104])},
    "PromptRequest": {
        "vLLM": _example("As for vLLM and SGLang", prompt="Hello", return_token_strs=True)
    },
    "ContentRequest": {"llama.cpp": _example("As llama.cpp asks", content="Hi", with_pieces=True)},
    "InputsRequest": {"inference": _example("As text-embeddings-inference asks", inputs="Hello")},
    "PlainTextRequest": {"Cohere": _example("As Cohere asks", text="Hello")},
    "MessagesRequest": {"conversation": _example("A conversation, as vLLM asks", messages=_HELLO)},
    "ChatEncodeRequest": {
        "conversation": _example(
            "A conversation, ready for the model's turn",
            messages=_HELLO,
            add_generation_prompt=True,
        ),
        "training": _example(
            "For training: which tokens are the assistant's",
            **{
                "messages": [*_HELLO, {"role": "assistant", "content": "Hi!"}],
                "return": ["ids", "mask", "spans"],
            },
        ),
    },
    "ChatRenderRequest": {"vLLM": _example("As vLLM asks", messages=_HELLO, max_tokens=64)},
    "ChatInputRequest": {"llama.cpp": _example("As llama.cpp asks", messages=_HELLO)},
    "GeminiCountRequest": {
        "Gemini": _example(
            "As Gemini asks", contents=[{"role": "user", "parts": [{"text": "Hello"}]}]
        )
    },
    "CompletionRenderRequest": {
        "vLLM": _example("As vLLM and llm-d ask", prompt=["Hello", "world"], max_tokens=64)
    },
    "MessagesRenderRequest": {"vLLM": _example("As vLLM asks", messages=_HELLO, max_tokens=64)},
    "ResponsesRenderRequest": {"vLLM": _example("As vLLM asks", input="Hello")},
    "CountTokensRequest": {
        "Anthropic": _example("As Anthropic asks", system="Be brief.", messages=_HELLO)
    },
    "InputTokensRequest": {
        "OpenAI": _example("As OpenAI asks", input="Hello", instructions="Be brief.")
    },
    "DetokenizeRequest": {"ids": _example("All dialects", tokens=[72, 105])},
    "PromoteRequest": {"newest": _example("The newest version of a name", tokenizer="starter")},
    "AliasRequest": {"name": _example("The tokenizer that it belongs to", tokenizer="starter")},
    "TrainRequest": {
        "documents": _example(
            "From a few texts in the request",
            documents=["the cat sat on the mat", "the dog sat on the log"],
            vocab_size=280,
            name="tiny",
            promote="manual",
        ),
        "files": _example(
            "From files under the corpus roots",
            input_paths=["news.txt"],
            vocab_size=10_000,
            special_tokens=["<|endoftext|>"],
            name="news",
        ),
        "corpora": _example(
            "From an uploaded corpus, without promoting the result",
            corpus_ids=["stories"],
            vocab_size=32_000,
            name="stories",
            pattern="o200k",
            promote="manual",
        ),
    },
    "EncodeCorpusRequest": {
        "nanoGPT": _example(
            "train.bin and val.bin for nanoGPT", tokenizer="starter", validation_share=0.005, seed=1
        ),
        "Megatron": _example(
            "JSON lines to .bin and .idx for Megatron",
            format="jsonl",
            field="text",
            layout="megatron",
        ),
        "shards": _example(
            "Shards of a hundred million ids, under a name",
            token_files_id="stories-gpt2",  # noqa: S106 - no password
            tokens_per_shard=100_000_000,
        ),
    },
}
"""Name of a request's model -> its examples, as OpenAPI has them in a body's `examples`."""


def examples_of(*models: str) -> Examples:
    """The examples of a body that is one of these models; those that have none add none."""
    return {
        name: example
        for model in models
        for name, example in REQUEST_EXAMPLES.get(model, {}).items()
    }
