"""Published vocabularies: those of tiktoken by name, and model folders of the Hugging Face Hub.

A preset supplies what a `.tiktoken` file lacks, the split pattern and the special tokens, as
`openai_public.py` of tiktoken 0.14 defines them. A file belongs to a preset only if its sha256 is
the pinned one, so a preset never gives other ids. Presets download nothing: the command
`tokenizer pull` fetches a file into the cache folder in which this module looks.

`download_model_folder` alone uses the network, through `huggingface_hub`, which is the extra `hub`.
It keeps the files in its cache and follows its variables of the environment: `HF_ENDPOINT`,
`HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN`.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import read_whole_file
from tokenizer_core.blobs.local_files import user_cache_folder
from tokenizer_core.errors import FormatError, HubError, PresetError, missing_extra
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tokenizer_core.splitting.patterns import SplitPattern

    StrPath = str | os.PathLike[str]

PUBLISHED_AT: Final = "https://openaipublic.blob.core.windows.net/encodings/"
"""The folder of the published files; tiktoken derives the names in its cache from these URLs."""

_HERE: Final = Path(__file__).resolve().parent
_CHECKOUT: Final = _HERE.parent
PACKAGED: Final = (_CHECKOUT if (_CHECKOUT / "setup.py").is_file() else _HERE) / "artifacts"
"""The folder with the starter and GPT-2's file; the build copies it into the package."""

STARTER: Final = "starter"
"""The name of the tokenizer that the package contains."""

_TIKTOKEN_CACHES: Final = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class Preset:
    """A published vocabulary: `file_name` and `sha256` of its rank file, the name of its split
    pattern, its special tokens with their ids, and the fingerprints of tokenizers with its ids."""

    name: str
    file_name: str
    sha256: str
    pattern: str
    special_tokens: Mapping[str, int]
    fingerprints: tuple[str, ...]

    @property
    def url(self) -> str:
        """Where the file is published."""
        return PUBLISHED_AT + self.file_name

    def matches(self, data: bytes) -> bool:
        """Whether `data` is the published file, byte for byte."""
        return hashlib.sha256(data).hexdigest() == self.sha256

    def build_spec(self, data: bytes) -> TokenizerSpec:
        """The spec of the rank file `data`. Raises FormatError: it is not the published file."""
        from tokenizer_core.formats.tiktoken_file import parse_tiktoken_ranks

        if not self.matches(data):
            raise FormatError(
                f"the file is not {self.file_name} as published (sha256 {self.sha256}), so the "
                f"preset {self.name} does not fit; for another vocabulary give its pattern and "
                f"special tokens (--pattern and --special; Tokenizer.from_tiktoken)"
            )
        ranks = parse_tiktoken_ranks(data)
        # Hugging Face's GPT-2 has its special token in model.vocab; the others have gaps, which put
        # all of them there anyway.
        in_model = tuple(self.special_tokens.values())
        return TokenizerSpec.from_ranks(
            ranks, self.special_tokens, pattern=self.pattern, model_added_ids=in_model
        )


_END: Final = {"<|endoftext|>": 50256}
_FIM: Final = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_HARMONY: Final = {
    "<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002,
    "<|constrain|>": 200003, "<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007,
    "<|message|>": 200008, "<|call|>": 200012, "<|endofprompt|>": 200018,
}  # fmt: skip
_RESERVED: Final = {
    f"<|reserved_{id_}|>": id_
    for id_ in range(200000, 201088)
    if id_ not in _HARMONY.values() or id_ == 200018
}

_SHA256: Final = {
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""Name of a rank file -> its hash."""

STARTER_FINGERPRINT: Final = "51b920339bb2a732b799ab854f392b501edea3f31e29c13ca34853d5713c02f6"
"""Of the tokenizer `starter`."""

_GPT2: Final = (
    "9d39b78957bce1d53289e6164c8adbf8c196b916bce5a9d5cdbc5cf011c4ad8a",
    # Of Hugging Face's tokenizer.json, and of vocab.json and merges.txt.
    "018aef71e7d6af23e428fac740688eb2c4c348a194899e6732868c3de92b4a51",
)
_FINGERPRINTS: Final = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": ("a3cc94eba798b595618fbf63cbd25f9e58dd47d7bc7793b3ba9e349a43aa005a",),
    "p50k_edit": ("56a2e46323fbe05ff89d0da94a29094e19f1d413152cab3c387a7e927aa3448e",),
    "cl100k_base": ("ed3ea4c807806e66e06c5f7b9f60b079ae796cf90e5d14f4ff507c64b100d499",),
    "o200k_base": ("92b8763dde69170c666212108b9fc030fcead785a21583a7c99923fc8e816229",),
    "o200k_harmony": ("e98d13742dea156bbcd9cc065607332f0e522b8e80db4817ca74caa5a7d8d774",),
}

_PRESETS: Final[tuple[tuple[str, str, str, Mapping[str, int]], ...]] = (
    ("gpt2", "r50k_base", "gpt2", _END),
    ("r50k_base", "r50k_base", "gpt2", _END),
    ("p50k_base", "p50k_base", "gpt2", _END),
    ("p50k_edit", "p50k_base", "gpt2", _END | dict(zip(_FIM, range(50281, 50284), strict=True))),
    ("cl100k_base", "cl100k_base", "cl100k", {
        "<|endoftext|>": 100257, **dict(zip(_FIM, range(100258, 100261), strict=True)),
        "<|endofprompt|>": 100276,
    }),
    ("o200k_base", "o200k_base", "o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
    ("o200k_harmony", "o200k_base", "o200k", _HARMONY | _RESERVED),
)  # fmt: skip
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        name: Preset(
            name, f"{file}.tiktoken", _SHA256[file], pattern, special_tokens, _FINGERPRINTS[name]
        )
        for name, file, pattern, special_tokens in _PRESETS
    }
)
"""The presets by name.

- `gpt2` reads the rank file of `r50k_base`: tiktoken gives both the same ranks.
- `o200k_harmony` has two names for id 200018, which decodes to the first, `<|endofprompt|>`.
"""

MODELS: Final = {
    "o200k_base": "o1 o3 o4-mini gpt-5 gpt-4.1 gpt-4o",
    "cl100k_base": (
        "gpt-4 gpt-3.5-turbo gpt-3.5 gpt-35-turbo davinci-002 babbage-002 text-embedding-ada-002 "
        "text-embedding-3-small text-embedding-3-large"
    ),
    "p50k_base": (
        "text-davinci-003 text-davinci-002 code-davinci-002 code-davinci-001 code-cushman-002 "
        "code-cushman-001 davinci-codex cushman-codex"
    ),
    "p50k_edit": "text-davinci-edit-001 code-davinci-edit-001",
    "r50k_base": (
        "text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 davinci curie babbage ada "
        "text-similarity-davinci-001 text-similarity-curie-001 text-similarity-babbage-001 "
        "text-similarity-ada-001 text-search-davinci-doc-001 text-search-curie-doc-001 "
        "text-search-babbage-doc-001 text-search-ada-doc-001 code-search-babbage-code-001 "
        "code-search-ada-code-001"
    ),
    "gpt2": "gpt2 gpt-2",
}
MODEL_PREFIXES: Final = {
    "o200k_base": "o1- o3- o4-mini- gpt-5 gpt-4.5- gpt-4.1- chatgpt-4o- gpt-4o- ft:gpt-4o",
    "o200k_harmony": "gpt-oss-",
    "cl100k_base": (
        "gpt-4- gpt-3.5-turbo- gpt-35-turbo- ft:gpt-4 ft:gpt-3.5-turbo ft:davinci-002 "
        "ft:babbage-002"
    ),
}
"""The models of OpenAI by preset, and the beginnings of their names, as in tiktoken 0.14."""


def preset_of_model(model: str) -> str | None:
    """The name of the preset that a model of OpenAI uses; None for an unknown model."""
    for preset, models in MODELS.items():
        if model in models.split():
            return preset
    for preset, prefixes in MODEL_PREFIXES.items():
        if model.startswith(tuple(prefixes.split())):
            return preset
    return None


def find_preset(name: str) -> Preset:
    """The preset of this name. Raises PresetError: there is none."""
    preset = PRESETS.get(name) if isinstance(name, str) else None
    if preset is not None:
        return preset
    of_model = preset_of_model(str(name))
    which = (
        f"; that of the model is {of_model}" if of_model else f"; there are {', '.join(PRESETS)}"
    )
    raise PresetError(f"there is no preset {name!r:.60}{own_name(name) or which}")


def own_name(name: object) -> str:
    """What loads a name that belongs to this library, to end a message; empty for any other."""
    if name == STARTER:
        return f"; the tokenizer of the package is Tokenizer.load({STARTER!r})"
    is_preset = isinstance(name, str) and name in PRESETS
    return f"; the preset is Tokenizer.from_preset({name!r})" if is_preset else ""


def find_packaged(path: StrPath) -> StrPath:
    """The folder of the starter for its name, unless a file or folder has this name; else `path`
    as it is."""
    if os.fspath(path) != STARTER or Path(path).exists():
        return path
    return max((PACKAGED / "tokenizers" / STARTER).iterdir())


def recognise_preset(data: bytes) -> Preset | None:
    """The preset whose published file `data` is, or None.

    Presets that share a file: `gpt2` and `r50k_base` are the same tokenizer. The file of
    `o200k_harmony` is recognised as `o200k_base`, after which it is named.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    found = [preset for preset in PRESETS.values() if preset.sha256 == sha256]
    return next((preset for preset in found if preset.file_name.startswith(preset.name)), None)


def load_path_spec(
    *paths: StrPath,
    pattern: str | SplitPattern | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
    ids: str | None = None,
) -> TokenizerSpec:
    """As `load_spec`, which reads everything but the published rank file of a preset: that has the
    special tokens of the preset unless others or another pattern are given; an empty mapping gives
    none. A folder whose only vocabulary is a rank file is that file.

    Raises:
        MissingPatternError: a rank file that is no preset's, without its pattern.
        FormatError: no supported format, or one that needs more or less than the arguments.
        FileNotFoundError: there is nothing; says which other method takes such a name.
    """
    from tokenizer_core.formats.any_format import detect_file, load_spec
    from tokenizer_core.formats.model_folder import sole_rank_file
    from tokenizer_core.formats.tiktoken_file import MAX_FILE_BYTES

    if len(paths) != 1:
        return load_spec(paths, pattern=pattern, special_tokens=special_tokens, ids=ids)
    path = paths[0]
    if not Path(path).exists():
        raise FileNotFoundError(errno.ENOENT, f"no such file or folder{other_way(path)}", path)
    if Path(path).is_dir():
        path = sole_rank_file(path) or path
    detected = None if Path(path).is_dir() else detect_file(path)
    is_ranks = detected is not None and detected.format == "tiktoken"
    if is_ranks and special_tokens is None and ids in (None, "file"):
        data = read_whole_file(path, max_bytes=MAX_FILE_BYTES)
        preset = recognise_preset(data)
        if preset is not None and (
            pattern is None or resolve_pattern(pattern) == resolve_pattern(preset.pattern)
        ):
            return preset.build_spec(data)
    return load_spec(
        [path],
        pattern=pattern,
        special_tokens=special_tokens,
        detected=detected,
        ids=ids,
    )


def other_way(path: StrPath) -> str:
    """What else a path that does not exist may be meant to name."""
    name = os.fspath(path)
    if own := own_name(name):
        return own
    if "://" in name:
        return "; an address is not read, copy the file first"
    is_file = name.startswith(".") or name.endswith((".json", ".tiktoken", ".model", ".txt"))
    if name.count("/") == 1 and all(name.split("/")) and not is_file:
        return (
            f"; if it is a model of the Hugging Face Hub, download it (tokenizer pull {name}; "
            f"Tokenizer.from_pretrained)"
        )
    if Path(name).name == name and not Path(name).suffix:
        return (
            "; a published tokenizer is loaded by its folder, or by its store: "
            f"store.load(store.resolve({name!r})) of ArtifactStore(folder)"
        )
    return ""


def load_preset_spec(name: str, path: StrPath | None = None) -> TokenizerSpec:
    """The spec of a preset, from the file at `path`, the package or a cache folder. Raises
    Exception: as `read_preset` and `Preset.build_spec`."""
    preset, data = read_preset(name, path)
    return preset.build_spec(data)


def read_preset(name: str, path: StrPath | None = None) -> tuple[Preset, bytes]:
    """A preset and its file: the one at `path`, in the package or in a cache folder. That of `path`
    is not compared yet: `build_spec` refuses another one. Raises PresetError: no preset has this
    name, or no cache folder has its file."""
    from tokenizer_core.formats.tiktoken_file import MAX_FILE_BYTES

    preset = find_preset(name)
    if path is not None:
        return preset, read_whole_file(path, max_bytes=MAX_FILE_BYTES)
    rejected: list[str] = []
    for cached in cached_paths(preset):
        with suppress(OSError, FormatError):  # the next place may have it
            data = read_whole_file(cached, max_bytes=MAX_FILE_BYTES)
            if preset.matches(data):
                return preset, data
            rejected.append(f"; {cached} is damaged or another file (its sha256 differs)")
    others = "".join(rejected)
    raise PresetError(
        f"{preset.file_name}, the file of the preset {name}, is not on this machine{others}. Fetch "
        f"it with: tokenizer pull {name}. Without a network, copy the file from {preset.url} to "
        f"{own_cache_path(preset)}, or give its path"
    )


def cached_paths(preset: Preset) -> Iterator[Path]:
    """Where the file may be, in order: the package, which has GPT-2's; tiktoken's cache folder if
    the environment names one; the project's own.

    `TIKTOKEN_CACHE_DIR` comes before `DATA_GYM_CACHE_DIR`; a folder with an empty name means no
    cache, both as in tiktoken.
    """
    packaged = PACKAGED / "presets" / preset.file_name
    if packaged.is_file():
        yield packaged
    named = next((os.environ[name] for name in _TIKTOKEN_CACHES if name in os.environ), "")
    if named:
        key = hashlib.sha1(preset.url.encode(), usedforsecurity=False).hexdigest()
        yield Path(named) / key
    yield own_cache_path(preset)


def own_cache_path(preset: Preset) -> Path:
    """Where `tokenizer pull` puts the file: in the user's cache folder, by the XDG rules."""
    return user_cache_folder() / "vocabularies" / preset.file_name


def download_model_folder(name: str, revision: str | None = None) -> Path:
    """The folder in the cache with the tokenizer files of the model `owner/name`.

    `revision` is a branch, a tag or a commit (default: `main`). Files in the cache are not fetched
    again. Without a network, the folder of an earlier call is used.

    Raises:
        HubError: `huggingface_hub` is not installed; no such model or revision; no network and
            nothing in the cache; a mirror answers with anything else; the model has no
            `tokenizer.json`, no `vocab.json` with `merges.txt`, no `tekken.json`, and no
            `tokenizer.model` of SentencePiece.
    """
    from tokenizer_core.formats.model_folder import (
        FILE_NAMES,
        MERGES,
        SENTENCEPIECE,
        TEKKEN,
        VOCAB,
        has_vocabulary,
    )
    from tokenizer_core.formats.transformers_releases import TOKENIZER

    # Imported here because it is optional, and because it reads its variables when it is imported.
    try:
        import huggingface_hub
    except ImportError as error:
        raise missing_extra(HubError, "a download from the Hugging Face Hub", "hub") from error
    is_path = isinstance(name, str) and name.startswith((".", "/", "~"))
    if not isinstance(name, str) or name.count("/") != 1 or not all(name.split("/")) or is_path:
        way = f"; Tokenizer.load({name!r:.80}) reads a folder" if is_path else own_name(name)
        raise HubError(f"the model {name!r:.80} must be owner/name, such as Qwen/Qwen3-8B{way}")
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(FILE_NAMES)
        )
    # A server that is no Hub may answer with anything: huggingface_hub then fails with any error.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise HubError(
            f"the tokenizer of {name} could not be downloaded ({type(error).__name__}: "
            f"{reason:.300}); check the name, the revision, HF_TOKEN, the network, HF_ENDPOINT and "
            f"HF_HUB_OFFLINE"
        ) from error
    if not has_vocabulary(Path(folder)):
        raise HubError(
            f"the model {name} has no {TOKENIZER}, no {VOCAB} with {MERGES}, no {TEKKEN}, and no "
            f"{SENTENCEPIECE} of SentencePiece; download its vocabulary and load that file"
        )
    return Path(folder)
