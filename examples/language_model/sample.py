"""Write text with a trained model.

python examples/language_model/sample.py run "Once upon a time" --temperature 0.8 --top-p 0.9
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from train import Config, open_tokenizer

from tokenizer_core.decode_streams import StreamingDecoder
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.evaluation.language_model import generate, load_model

END_OF_TEXT = "<|endoftext|>"


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
    """Continue the prompt until `<|endoftext|>` or `--max-tokens`."""
    saved = json.loads((arguments.run / "config.json").read_text())
    tokenizer = open_tokenizer(Config(**saved))
    model = load_model(arguments.run / "checkpoint.pt", tokenizer=tokenizer.spec.fingerprint)
    end_id = tokenizer.spec.special_tokens.get(END_OF_TEXT)
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
