"""Write the training texts of the starter: the beginning of each corpus, cut at a document.

    .venv/bin/python benchmarks/make_starter_corpus.py corpora/starter
    .venv/bin/tokenizer train corpora/starter/*.txt --name starter --vocab-size 32000 \
        --special-token '<|endoftext|>' --workers 2
"""

import sys
from pathlib import Path

from corpora import DATA, SEPARATOR

# Bytes, not characters: a script with three bytes per character needs as many merges for the same
# bytes per token. English news and books together have three times the weight of another language.
MIX = {
    "en_reuters_news": 8_000_000,
    "en_books": 7_000_000,
    "zh_modern_bitext": 5_000_000,
    "ja_aozora": 5_000_000,
    "ru_ruslit": 5_000_000,
    "ko_nsmc": 5_000_000,
    "social_tweets_emoji": 4_500_000,
    "code_c_linux": 5_000_000,
    "code_py_js_rs": 5_000_000,
}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for corpus, n_bytes in MIX.items():
        with (DATA / "corpora" / f"{corpus}.txt").open("rb") as file:
            text = file.read(n_bytes)
        end = text.rfind(SEPARATOR.encode()) + len(SEPARATOR)
        (folder / f"{corpus}.txt").write_bytes(text[:end])
        print(f"{corpus}: {end:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
