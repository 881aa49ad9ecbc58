"""Train the starter and publish it in a folder, `artifacts` for the packaged one.

    .venv/bin/python benchmarks/make_starter.py SOURCES artifacts

SOURCES has checkouts of these projects by their names, and an unpacked wheel of wordfreq 3.1.1
(which needs msgpack); the rest is in the shared data:

- IoT-For-Beginners (MIT): lessons in all languages, translated by machine
- xquad (CC BY-SA 4.0): Wikipedia articles; the last third is left out, to measure
- bible-corpus, `Swahili-NT.xml` (CC0)
- wordfreq (CC BY-SA 4.0): lists of lower-case words by frequency
"""

import gzip
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import msgpack
from corpora import DATA, SEPARATOR

from tokenizer_core.documents import CorpusSource
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.training.combine_counts import combine_counts
from tokenizer_core.training.count_pretokens import count_pretokens
from tokenizer_core.training.pretoken_counts import PretokenCounts
from tokenizer_core.training.trainer import train_from_counts
from tokenizer_core.training.vocabulary_plan import VocabularyOptions

PATTERN = PATTERNS["o200k"]  # gpt2 cuts a word of Hindi or Thai at each vowel sign
SPECIAL_TOKENS = (SEPARATOR, "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = 64_000
MAX_TOKEN_BYTES = 48
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Megabytes that a text counts as, whatever its size. English has as much as all other languages:
# GPT-2 has its 50,000 merges for it.
LANGUAGES = {
    "en": 4.0,
    "es": 1.0,
    "de": 1.0,
    "tr": 1.0,
    "sw": 1.6,
    "vi": 1.2,
    "ru": 1.0,
    "ar": 1.5,
    "hi": 2.0,
    "th": 2.5,
    "zh": 0.8,
    "ja": 0.8,
    "ko": 0.8,
}
WORD_LISTS = {
    "large_en": 18.0,
    "large_es": 1.2,
    "large_de": 1.2,
    "small_tr": 1.2,
    "small_vi": 0.6,
    "large_ru": 1.0,
    "large_ar": 1.5,
    "small_hi": 1.2,
    "large_zh": 0.8,
    "large_ja": 0.8,
}
CORPORA = {
    "en_reuters_news": 9.0,
    "en_books": 8.0,
    "ru_ruslit": 1.0,
    "zh_modern_bitext": 1.2,
    "ja_aozora": 1.2,
    "ko_nsmc": 1.6,
    "code_c_linux": 1.0,
    "code_py_js_rs": 1.5,
    "social_tweets_emoji": 3.0,
}
CORPUS_BYTES = 8_000_000
"""The beginning of each corpus is read; the end is left out, to measure."""


def lessons(sources, language):
    """The prose of each lesson, each line once: without code, addresses and links."""
    seen = set()
    for path in sorted((sources / "IoT-For-Beginners/translations" / language).rglob("*.md")):
        text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"^```.*?^```[^\n]*$", "", text, flags=re.S | re.M)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|https?://\S+", r"\1", text)
        lines = [line for line in text.splitlines(True) if "Co-op Translator" not in line]
        yield "".join(line for line in lines if line.isspace() or line not in seen)
        seen.update(lines)


def articles(sources, language):
    """The first 32 of the 48 articles, with their questions."""
    path = sources / "xquad" / f"xquad.{language}.json"
    if path.exists():
        for article in json.loads(path.read_text(encoding="utf-8"))["data"][:32]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (question["question"] for question in paragraph["qas"])


def verses(sources, language):
    if language == "sw":
        text = (sources / "bible-corpus/bibles/Swahili-NT.xml").read_text(encoding="utf-8")
        yield "\n".join(re.findall(r"<seg[^>]*>\s*(.*?)\s*</seg>", text, flags=re.S))


def count(texts, path):
    """The counts of these documents, written to a file to have its digest in the manifest."""
    path.write_text(f"\n{SEPARATOR}\n".join(texts), encoding="utf-8")
    return count_pretokens([path], pattern=PATTERN, special_tokens=SPECIAL_TOKENS)


def count_words(path, language):
    """A list of words as counts: 1 of 8 with a capital, as at the start of a sentence."""
    buckets = msgpack.loads(gzip.decompress(path.read_bytes()), raw=False)[1:]
    counts = Counter()
    for centibels, words in enumerate(buckets):
        for word in words:
            frequency = round(10 ** (10 - centibels / 100))
            if language in ("zh", "ja"):  # no spaces between words
                counts[word] += 8 * frequency
            else:
                counts[f" {word}"] += 7 * frequency
                counts[f" {word[:1].upper()}{word[1:]}"] += frequency
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    source = CorpusSource(f"wordfreq_{path.name}", path.stat().st_size, sha256)
    return PretokenCounts(+counts, PATTERN, SPECIAL_TOKENS, (source,))


def weighted(counts, megabytes):
    """Counts with the weight that makes them that large."""
    return counts, Fraction(round(64 * megabytes * 1e6 / counts.n_pre_token_bytes * 2**20), 2**26)


def beginning(corpus):
    with (DATA / "corpora" / f"{corpus}.txt").open("rb") as file:
        text = file.read(CORPUS_BYTES)
    return text[: text.rfind(SEPARATOR.encode())].decode()


def letters_and_emoji():
    """Seeds: the letters of Latin-1 and Latin Extended-A, and emoji that people send."""
    import regex

    tweets = (DATA / "corpora/social_tweets_emoji.txt").read_text(encoding="utf-8")
    emoji = Counter(regex.findall(r"\p{Emoji_Presentation}", tweets))
    letters = [letter for letter in map(chr, range(0xC0, 0x180)) if letter.isalpha()]
    return (*letters, *(one for one, times in emoji.most_common() if times >= 3))


def main(sources, artifacts):
    parts = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for language, megabytes in LANGUAGES.items():
            texts = [
                text for read in (lessons, articles, verses) for text in read(sources, language)
            ]
            parts.append(weighted(count(texts, folder / f"{language}.txt"), megabytes))
        for corpus, megabytes in CORPORA.items():
            parts.append(weighted(count([beginning(corpus)], folder / f"{corpus}.txt"), megabytes))
    for words, megabytes in WORD_LISTS.items():
        path = sources / "wordfreq/wordfreq/data" / f"{words}.msgpack.gz"
        parts.append(weighted(count_words(path, words[-2:]), megabytes))
    options = VocabularyOptions(seed_tokens=letters_and_emoji(), max_token_length=MAX_TOKEN_BYTES)
    counts = combine_counts(parts)
    result = train_from_counts(counts, VOCAB_SIZE, options=options)
    spec = result.spec.with_chat(ChatTemplates({"default": CHAT_TEMPLATE}))
    sources_read = [
        {"name": Path(one.path).name, "size_bytes": one.size_bytes, "sha256": one.sha256}
        for one in counts.sources
    ]
    report = result.report.to_dict()
    scale = counts.n_pre_token_bytes / sum((LANGUAGES | WORD_LISTS | CORPORA).values()) / 1e6
    for table in (report, *report["curve"]):  # the weights are large whole numbers
        for name in ("n_bytes", "n_documents", "n_pre_tokens", "n_tokens"):
            if name in table:
                table[name] = round(table[name] / scale)
    store = ArtifactStore(artifacts)
    print(store.publish(spec, name="starter", training=report, provenance=sources_read))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
