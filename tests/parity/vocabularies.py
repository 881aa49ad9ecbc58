"""The public vocabularies, and the texts that the parity tests encode with them."""

import hashlib

import numpy as np

from tests.adversarial import adversarial_texts, class_borders_in_context
from tokenizer_core import Tokenizer
from tokenizer_core.presets import find_preset

TEKKEN_SPECIALS = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]  # fmt: skip
"""Of files up to version v7 of the format, by id."""
RANK_FILES = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}
SPECIALS = {
    **{name: dict(find_preset(file).special_tokens) for name, file in RANK_FILES.items()},
    "tekken": {content: id_ for id_, content in enumerate(TEKKEN_SPECIALS)}
    | {f"<SPECIAL_{id_}>": id_ for id_ in range(20, 1000)},
}
JSON_FILES = {
    "gpt2_json": "gpt2.tokenizer.json",
    "llama3": "llama3_1.tokenizer.json",
    "qwen3": "qwen3.tokenizer.json",
}
OPEN_FILES = {
    "whisper": "whisper_hf.tokenizer.json",
    "deepseek_v3": "deepseek_v3.tokenizer.json",
    "gpt_neox": "gpt_neox.tokenizer.json",
    "phi2": "phi2.tokenizer.json",
    "smollm": "smollm.tokenizer.json",
    "tekken": "tekken_240911.json",
    "llama2": "llama2.tokenizer.json",
    "mistral01": "mistral01.tokenizer.json",
    "roberta": "roberta.tokenizer.json",
    "modernbert": "modernbert.tokenizer.json",
}
"""Of `vocab_open`."""
NAMES = [*RANK_FILES, *JSON_FILES]
CORPORA = [
    "en_reuters_news", "en_books", "zh_modern_bitext", "ja_aozora", "ru_ruslit", "ko_nsmc",
    "code_c_linux", "code_py_js_rs", "social_tweets_emoji", "tinystories_small", "edge_unicode",
]  # fmt: skip

DIGEST_BYTES = {"native": 500_000, "python": 20_000}
"""The part of each corpus that each engine encodes for the digests; the Python engine is slow."""


def vocabulary_file(data, name):
    """The file of a vocabulary in the shared data."""
    if name in OPEN_FILES:
        return data / "vocab_open" / OPEN_FILES[name]
    return data / "vocab" / (JSON_FILES.get(name) or f"{RANK_FILES[name]}.tiktoken")


def load_ours(data, name, engine):
    """A public vocabulary on one of our engines."""
    path = vocabulary_file(data, name)
    if name in RANK_FILES:
        return Tokenizer.from_tiktoken(
            path, pattern=name, special_tokens=SPECIALS[name], engine=engine
        )
    return Tokenizer.load(path, engine=engine)


def read_sample(path, n_bytes, offset=0):
    """A part of a file that cuts no character."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(n_bytes).decode("utf-8", "ignore")


def digest_texts(data, n_bytes):
    """Texts by name: the beginning of each corpus, and texts made to find differences."""
    corpora = {c: [read_sample(data / "corpora" / f"{c}.txt", n_bytes)] for c in CORPORA}
    made = {"adversarial": adversarial_texts(), "class borders": [*class_borders_in_context()]}
    return corpora | made


def digest_of_ids(encode, texts):
    """16 digits of the digest of the ids of these texts, each preceded by the number of its ids."""
    digest = hashlib.sha256()
    for text in texts:
        ids = np.asarray(encode(text), dtype="<u4")
        digest.update(len(ids).to_bytes(8, "little"))
        digest.update(ids.tobytes())
    return digest.hexdigest()[:16]


def digest_of_texts(texts):
    """16 digits of the digest of these texts, to detect other data."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
