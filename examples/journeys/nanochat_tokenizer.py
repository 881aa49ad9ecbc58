"""Train the tokenizer of nanochat and write the `tokenizer.pkl` and `token_bytes.pt` that it loads.

    python examples/journeys/nanochat_tokenizer.py texts.txt 32768 ~/.cache/nanochat/tokenizer

nanochat unpickles an object with tiktoken's methods; this one encodes with this library's engine.
Its folder must be able to import `tokenizer_core`; `token_bytes.pt` needs torch. Documents are
separated by blank lines here.
"""

import pickle
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tokenizer_core import SplitPattern, TrainingOptions, train_from_iterator
from tokenizer_core.compat import tiktoken
from tokenizer_core.evaluation import token_byte_lengths
from tokenizer_core.formats.tiktoken_file import load_tiktoken_ranks

# As in nanochat/tokenizer.py: GPT-4's pattern with numbers of at most two digits.
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
ROLES = ["user", "assistant", "python", "output"]
SPECIAL_TOKENS = ["<|bos|>", *(f"<|{role}_{end}|>" for role in ROLES for end in ("start", "end"))]


def train(texts: Iterable[str], vocab_size: int) -> tiktoken.Encoding:
    """The encoding: bytes and merges first, the special tokens after them."""
    pattern = SplitPattern("custom", PATTERN, dialect="fancy-regex", unmatched="drop")
    options = TrainingOptions(vocab_size - len(SPECIAL_TOKENS), pattern=pattern)
    tokenizer = train_from_iterator(texts, options).tokenizer
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_tiktoken(Path(folder, "ranks"))  # refuses merges that no ranks express
        ranks = load_tiktoken_ranks(Path(folder, "ranks"))
    special = {token: len(ranks) + index for index, token in enumerate(SPECIAL_TOKENS)}
    return tiktoken.Encoding(
        "nanochat", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special
    )


def main() -> None:
    """Train on a text file."""
    texts = Path(sys.argv[1]).read_text(encoding="utf-8").split("\n\n")
    encoding = train(texts, int(sys.argv[2]))
    path = Path(sys.argv[3], "tokenizer.pkl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(encoding))
    lengths = token_byte_lengths(encoding.tokenizer.spec)
    try:
        import torch
    except ImportError:
        print("no token_bytes.pt, which nanochat's evaluation reads: torch is not installed")
    else:
        torch.save(torch.from_numpy(lengths), path.with_name("token_bytes.pt"))
    print(f"{path}: {encoding.n_vocab} tokens, {encoding.tokenizer.engine_name} engine")


if __name__ == "__main__":
    main()
