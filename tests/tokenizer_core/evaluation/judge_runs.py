"""A judge run made by hand."""

from typing import Any

from tokenizer_core.evaluation.judge_data import (
    JUDGE_SCHEMA,
    JudgedCorpus,
    JudgedModel,
    JudgedTokenizer,
    Judgement,
    LossPoint,
    ModelSize,
    Spread,
)


def judged(name: str, losses: list[float], **fields: Any) -> JudgedTokenizer:
    """A tokenizer with these bits per byte, one for each seed."""
    curve = [LossPoint(1000 * n, 2500 * n, 10**9 * n, 4 / n) for n in (1, 2, 3)]
    given: dict[str, Any] = {
        "name": name,
        "fingerprint": f"{name:0<64}",
        "normalizer": "none",
        "vocab_size": 1000,
        "n_parameters": 123_456,
        "n_parameters_of_layers": 100_000,
        "bytes_per_token": 2.5,
        "n_validation_tokens": 4000,
        "flops_per_token": 10**6,
        "n_steps": 30,
        "n_tokens": 1_230_000,
        "n_bytes": 7500,
        "flops": 3 * 10**9,
        "epochs": 0.25,
        "tokens_per_second": 4321.0,
        "bits_per_byte": Spread.over(losses),
        "models": [
            JudgedModel(seed, loss, loss * 1.7, 9.0, curve) for seed, loss in enumerate(losses)
        ],
    }
    return JudgedTokenizer(**given | fields)


def run_of(*tokenizers: JudgedTokenizer, **fields: Any) -> Judgement:
    """A run of these tokenizers."""
    given: dict[str, Any] = {
        "schema": JUDGE_SCHEMA,
        "budget": "flops",
        "amount": 3 * 10**9,
        "size": ModelSize("tiny", 128, 2, 4, 128, 16, 3e-3),
        "corpus": JudgedCorpus("news.txt", 500, 7, 40_000, 10_000),
        "seeds": list(range(len(tokenizers[0].models))),
        "machine": "Linux",
        "tokenizers": list(tokenizers),
    }
    return Judgement(**given | fields)
