"""The texts and vocabularies that the benchmarks measure, by path or by name.

A name is a file of `../shared/data` (or of the folder that TOKENIZER_TEST_DATA names) without its
ending: `en_reuters_news`, `gpt2`.
"""

import argparse
import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("TOKENIZER_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
SEPARATOR = "<|endoftext|>"
DISTINCT = "distinct-"
"""`distinct-20` is 20 MB of `distinct_text.py`."""

LABELS = {
    "en_reuters_news": "English news",
    "en_books": "English novels",
    "zh_modern_bitext": "Chinese",
    "ja_aozora": "Japanese",
    "ko_nsmc": "Korean",
    "ru_ruslit": "Russian",
    "code_c_linux": "C",
    "code_py_js_rs": "Python, JavaScript, Rust",
    "social_tweets_emoji": "tweets",
    "tinystories_small": "stories",
    "gpt2": "GPT-2",
    "r50k_base": "GPT-2",
    "o200k_base": "o200k",
    "llama2": "Llama 2",
    "llama3_1": "Llama 3",
    "deepseek_v3": "DeepSeek V3",
    "kimi_k2": "Kimi K2",
    "tekken_240911": "Tekken",
    "qwen3": "Qwen 3",
}


def text_path(name):
    """A UTF-8 file, for argparse's `type`."""
    return _find(name, ["corpora"], [".txt"])


def text_in(folder, name):
    """The file of `text_path`, or `distinct-20`, written to the folder."""
    if not name.startswith(DISTINCT):
        return text_path(name)
    from distinct_text import write_distinct_text  # needs numpy, and this module nothing

    write_distinct_text(folder / name, int(name.removeprefix(DISTINCT)) * 1_000_000)
    return folder / name


def vocab_path(name):
    """A file that `Tokenizer.load` reads, for argparse's `type`."""
    return _find(name, ["vocab", "vocab_open"], [".tiktoken", ".tokenizer.json", ".json"])


def _find(name, folders, endings):
    named = (DATA / folder / (name + ending) for folder in folders for ending in endings)
    tried = [Path(name), *named]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{name!r} is neither a file nor one of {' and '.join(folders)} in {DATA}; "
            f"TOKENIZER_TEST_DATA names another folder"
        )
    return found.resolve()


def label(path):
    """How the tables call a text or a vocabulary."""
    stem = path.name.partition(".")[0]
    return "distinct text" if stem.startswith(DISTINCT) else LABELS.get(stem, stem)
