"""The client of lm-evaluation-harness with a real server."""

from __future__ import annotations

import httpx

from tests.integration.running_server import RunningServer
from tokenizer_core import Tokenizer


def test_the_remote_tokenizer_of_lm_evaluation_harness(
    server: RunningServer, small_tokenizer: Tokenizer
) -> None:
    """Its `RemoteTokenizer` and `check_remote_tokenizer_support`, request for request."""
    base_url = f"{server.url}/v1/completions".replace("/v1/completions", "").rstrip("/")
    with httpx.Client(headers={"Content-Type": "application/json"}) as session:
        info = session.get(f"{base_url}/tokenizer_info")
        assert info.status_code == 200
        assert isinstance(info.json(), dict)
        assert "eos_token" in info.json()

        def encode(text: str) -> list[int]:
            payload = {"prompt": text, "add_special_tokens": False}
            tokens = session.post(f"{base_url}/tokenize", json=payload).json().get("tokens")
            assert isinstance(tokens, list)
            return tokens

        def decode(tokens: list[int]) -> str:
            prompt = session.post(f"{base_url}/detokenize", json={"tokens": tokens}).json()[
                "prompt"
            ]
            assert isinstance(prompt, str)
            return prompt

        assert encode("test") == small_tokenizer.encode("test")
        eos = info.json()["eos_token"]
        assert encode(eos) == [small_tokenizer.spec.special_tokens[eos]]
        assert decode(encode(eos)) == eos  # as it requests the text of its end token
        text = "The quick\n brown <|a|> 中文 fox"
        assert decode(encode(text)) == text
        assert info.json().get("bos_token") is None
        assert "messages" in info.json()["chat_template"]  # it applies the template itself
