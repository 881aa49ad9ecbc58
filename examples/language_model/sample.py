"""Write text with a trained model.

python examples/language_model/sample.py run "Once upon a time" --temperature 0.8 --top-p 0.9
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from model import KeyValueCache, ModelConfig, TransformerLM, softmax
from torch import Tensor
from train import Config, load_checkpoint, open_tokenizer

from tokenizer_core import StreamingDecoder, TokenizerCoreError
from tokenizer_core.corpus import TokenFiles


def load_model(path: Path, *, tokenizer: str) -> TransformerLM:
    """The model of a checkpoint for the tokenizer of this fingerprint, on the CPU.

    Raises:
        ValueError, OSError: as `load_checkpoint`.
    """
    state = load_checkpoint(path, tokenizer=tokenizer)
    model = TransformerLM(ModelConfig(**state["model_config"]))
    model.load_state_dict(state["model"])
    model.eval()
    return model


def sample_id(
    logits: Tensor, *, temperature: float, top_p: float, generator: torch.Generator | None = None
) -> int:
    """An id drawn from logits (V); a temperature of 0 selects the likeliest.

    `top_p` keeps the fewest ids whose probabilities sum to at least `top_p` (Holtzman et al. 2020,
    nucleus sampling).
    """
    if temperature == 0:
        return int(logits.argmax())
    probabilities = softmax(logits.float() / temperature)
    if top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        # An id stays if the ids before it do not reach top_p; the first always stays.
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
        chosen = torch.multinomial(ordered, 1, generator=generator)
        return int(order[chosen])
    return int(torch.multinomial(probabilities, 1, generator=generator))


def generate(
    model: TransformerLM,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    stop_id: int | None = None,
    seed: int | None = None,
) -> Iterator[int]:
    """Continue `prompt` by up to `max_tokens` ids; `stop_id` ends the text and is not returned.

    Keys and values of earlier positions are cached. When the context is full, the model reads the
    later half of it again and continues.

    Raises:
        ValueError: the prompt is empty, or an option is out of its range.
    """
    if not prompt:
        raise ValueError("the prompt has no ids; start with some text")
    if temperature < 0 or not 0 < top_p <= 1:
        raise ValueError("temperature must be at least 0, and top_p above 0 and at most 1")
    context_length = model.config.context_length
    device = model.lm_head.weight.device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    ids = list(prompt)
    caches: list[KeyValueCache] = []
    unread = ids[-context_length:]
    for _ in range(max_tokens):
        if caches and len(caches[0]) == context_length:
            caches, unread = [], ids[-max(context_length // 2, 1) :]
        caches = caches or [KeyValueCache() for _ in model.layers]
        with torch.no_grad():
            logits = model(torch.tensor([unread], device=device), caches)[0, -1]
        chosen = sample_id(logits, temperature=temperature, top_p=top_p, generator=generator)
        if chosen == stop_id:
            return
        yield chosen
        ids.append(chosen)
        unread = [chosen]


def main() -> int:
    """Print a text as it is written; return 0 on success."""
    arguments = parse_arguments()
    try:
        sample(arguments)
    except (TokenizerCoreError, LookupError, OSError, ValueError) as error:
        print(f"sample: {error}", file=sys.stderr)
        return 1
    return 0


def sample(arguments: argparse.Namespace) -> None:
    """Continue the prompt until the end of a document or `--max-tokens`."""
    config = Config(**json.loads((arguments.run / "config.json").read_text()))
    tokenizer = open_tokenizer(config)
    model = load_model(arguments.run / "checkpoint.pt", tokenizer=tokenizer.spec.fingerprint)
    end_id = TokenFiles.open(config.tokens).manifest.plan.end_of_document_id
    prompt = tokenizer.encode_ordinary(arguments.prompt)
    if not prompt and end_id is not None:
        prompt = [end_id]  # a new document
    ids = generate(
        model,
        prompt,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        stop_id=end_id,
        seed=arguments.seed,
    )
    print(arguments.prompt, end="", flush=True)
    decoder = StreamingDecoder(tokenizer)  # a character may span several ids
    for id_ in ids:
        print(decoder.feed([id_]), end="", flush=True)
    print(decoder.flush())


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder `out` of the training")
    parser.add_argument("prompt", nargs="?", default="", help="the beginning of the text")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, help="the same seed writes the same text")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
