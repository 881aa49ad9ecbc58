"""Count the tokens of files and cut them to a limit, as code written for tiktoken does.

    python examples/journeys/replace_tiktoken.py gpt2 100 README.md

Only the import differs. A vocabulary other than gpt2 is fetched once: `tokenizer pull cl100k_base`.
"""

import sys
from pathlib import Path

from tokenizer_core.compat import tiktoken  # was: import tiktoken


def cut(encoding: tiktoken.Encoding, text: str, n_tokens: int) -> str:
    """The beginning of `text` of at most `n_tokens` tokens."""
    return encoding.decode(encoding.encode(text, disallowed_special=())[:n_tokens])


def main() -> None:
    """Print the count and the beginning of each file."""
    name, limit, *paths = sys.argv[1:]
    encoding = tiktoken.get_encoding(name)
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    for path, ids in zip(paths, encoding.encode_ordinary_batch(texts), strict=True):
        print(f"{path}: {len(ids)} tokens")
    for path, text in zip(paths, texts, strict=True):
        print(f"{path} begins: {cut(encoding, text, int(limit))!r}")


if __name__ == "__main__":
    main()
