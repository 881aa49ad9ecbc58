"""The texts the starter tokenizer is trained on: the beginning of each corpus, cut at a document.

    .venv/bin/python benchmarks/make_starter_corpus.py FOLDER
    .venv/bin/tokenizer train FOLDER/*.txt --name starter --vocab-size 32000 \
        --special-token '<|endoftext|>' --workers 2

It also writes `benchmarks/starter_mix.json`, where each part ends: what comes after is text the
starter has not seen, and `first_light.py starter` measures on that.
"""

import json
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("TOKENIZER_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
SEPARATOR = b"<|endoftext|>"

# Bytes, not characters or documents: a script of three bytes a character needs as many merges to
# reach the same bytes a token. English and code have two files each and so twice the weight.
MIX = {
    "en_reuters_news": 6_000_000,
    "en_books": 6_000_000,
    "zh_modern_bitext": 6_000_000,
    "ja_aozora": 6_000_000,
    "ru_ruslit": 6_000_000,
    "ko_nsmc": 6_000_000,
    "social_tweets_emoji": 4_000_000,
    "code_c_linux": 4_000_000,
    "code_py_js_rs": 4_000_000,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ends = []
    for corpus, n_bytes in MIX.items():
        with (DATA / "corpora" / f"{corpus}.txt").open("rb") as file:
            text = file.read(n_bytes)
        end = text.rfind(SEPARATOR) + len(SEPARATOR)
        (folder / f"{corpus}.txt").write_bytes(text[:end])
        ends.append([corpus, end])
        print(f"{corpus}: {end:,} bytes")
    listed = json.dumps(ends, indent=1) + "\n"
    (REPOSITORY / "benchmarks" / "starter_mix.json").write_text(listed, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
