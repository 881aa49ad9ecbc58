"""Converts a tokenizer to another format: writes it to a temporary folder, reads it back, compares,
then renames it.

A writer refuses by name any property that its format cannot store and that a reader cannot pass as
an argument. The files do not contain what the reader can pass (split pattern, special tokens);
`not_carried` lists these properties, and `loading_lines` shows how to pass them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.errors import ConversionError, FormatError, InvalidSpecError
from tokenizer_core.formats.any_format import Target, write_files
from tokenizer_core.formats.manifest_fields import MANIFEST_NAME
from tokenizer_core.formats.model_folder import WRITTEN, names_to_write
from tokenizer_core.formats.pickle_files import PICKLE_NAMES
from tokenizer_core.formats.tokenizer_json.post_processor import template_steps
from tokenizer_core.presets import load_path_spec
from tokenizer_core.registry.golden_text import GOLDEN_TEXT
from tokenizer_core.splitting.patterns import CUSTOM
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.policy import Allowed

FILE_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tokenizer.json": ("tokenizer.json",),
        "transformers": WRITTEN,
        "tiktoken": ("tokenizer.tiktoken",),
        "gpt2": ("vocab.json", "merges.txt"),
        "pickle": PICKLE_NAMES,
    }
)
"""Format -> the names of its files in a folder; `names_to_write` adds one to those of a model
folder for stop tokens."""

_WHOLE: Final = ("tokenizer.json", "transformers")
"""The formats that hold everything that decides ids."""

# Used with the golden text: inputs that distinguished tokenizers whose tables were equal.
_TRAPS: Final = (
    "",
    "a" * 4096,
    " " * 300 + "x" + "\n" * 300 + "\t\r\n \r\n",
    "0123456789" * 30,
    "I'm you're he'll SHE'LL it'S I'D we've 'tis o'clock 's'ſ",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul in jamo
    "\u0301\u0323e\u0301\u0323 \u0344 \u212b \u2126",
)


def convert_spec(
    spec: TokenizerSpec,
    target: Target,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> tuple[list[Path], bool]:
    """Write `spec` in the format `target`; return the files, and whether they hold all of `spec`.

    For formats of one file, `output` is the file or an existing folder; for the others it is a
    folder, created if missing. `transformers` alone stores the chat templates and the stop tokens
    of `spec`.

    The files are read back before they get their names. If the result has the fingerprint of
    `spec`, the function returns True. Otherwise the result may differ only in properties that the
    format omits, and must give the same ids for every token of the vocabulary and for texts chosen
    to expose differences; the function then returns False. After a failure, a full disk or an
    interrupt, the earlier files are unchanged.

    Raises:
        FormatError: the format cannot store `spec`; names the property.
        ConversionError: the output exists and `overwrite` is false, or it is not a regular file or
            folder; or the files do not give `spec` when read back.
        OSError: a file cannot be written.
    """
    if target == "tiktoken":
        _check_special_tokens_for_tiktoken(spec)
    paths = output_paths(spec, target, output)
    _check_free(target, paths, overwrite=overwrite)
    folder = paths[0].parent
    is_new_folder = len(paths) > 1 and not folder.exists()
    if is_new_folder:
        folder.mkdir()
    try:
        with tempfile.TemporaryDirectory(prefix=".convert.", dir=folder) as aside:
            staged = [Path(aside) / path.name for path in paths]
            write_files(target, spec, *staged)
            is_same = _check_read_back(spec, target, staged)
            _check_free(target, paths, overwrite=overwrite)
            _put_in_place(staged, paths, Path(aside))
    except BaseException:
        if is_new_folder:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return paths, is_same


def _check_special_tokens_for_tiktoken(spec: TokenizerSpec) -> None:
    """Refuse two special tokens of which one is a prefix of the other. tiktoken takes either one,
    by no documented rule; this library and Hugging Face's tokenizers take the longer one."""
    contents = sorted(token.content for token in spec.added_tokens)
    for one, other in pairwise(contents):  # sorted: strings that begin with a string follow it
        if other.startswith(one):
            raise FormatError(
                f"of the special tokens {one!r:.60} and {other!r:.60} one begins with the other, "
                f"and tiktoken may take the shorter; convert to tokenizer.json instead"
            )


def output_paths(spec: TokenizerSpec, target: Target, output: str | os.PathLike[str]) -> list[Path]:
    """The files that `convert_spec` writes."""
    path, names = Path(output), FILE_NAMES[target]
    if target == "transformers":
        names = names_to_write(spec, path)
    if len(names) == 1 and not path.is_dir():
        return [path]
    return [path / name for name in names]


def _check_free(target: Target, paths: list[Path], *, overwrite: bool) -> None:
    folder = paths[0].parent
    if len(paths) > 1 and folder.exists() and not folder.is_dir():
        raise ConversionError(
            f"{target} is {len(paths)} files, and {folder} is no folder; give a folder"
        )
    parent = folder if len(paths) == 1 else folder.parent
    if not parent.is_dir():
        raise ConversionError(f"there is no folder {parent}; make it first")
    if target == "pickle" and (folder / MANIFEST_NAME).exists():
        raise ConversionError(
            f"the {MANIFEST_NAME} in {folder} says what the pickles there are; give another folder"
        )
    for path in paths:
        if not os.path.lexists(path):
            continue
        if not path.is_file():
            raise ConversionError(f"{path} is no regular file; give another output")
        if not overwrite:
            raise ConversionError(
                f"{path} is there already; give another output, or overwrite it (--force; "
                f"overwrite=True)"
            )


def _check_read_back(spec: TokenizerSpec, target: Target, paths: list[Path]) -> bool:
    """Whether the files contain all of `spec`; raises if they give other ids."""
    given = target not in _WHOLE
    try:
        again = load_path_spec(
            *([paths[0].parent] if target == "transformers" else paths),
            pattern=spec.pattern if given else None,
            special_tokens=spec.added_ids if given else None,
        )
    except (FormatError, InvalidSpecError) as error:
        raise ConversionError(f"what was written cannot be read back: {error}") from error
    if target == "transformers" and again.chat.sources != spec.chat.sources:
        raise ConversionError("what was written has other chat templates when it is read back")
    if again.fingerprint == spec.fingerprint:
        return True
    if _filled_up(again, spec, target).fingerprint != spec.fingerprint:
        raise ConversionError(
            "what was written is another tokenizer when it is read back; nothing was kept"
        )
    _check_same_ids(Tokenizer.from_spec(spec), Tokenizer.from_spec(again))
    return False


def _filled_up(again: TokenizerSpec, spec: TokenizerSpec, target: Target) -> TokenizerSpec:
    """`again`, with the properties that the format omits taken from `spec`."""
    if again.kind != spec.kind:
        # Equivalent ranks and merges: `tiktoken_file` has the proof, and the ids confirm it.
        again = dataclasses.replace(
            again, kind=spec.kind, merges=spec.merges, ignore_merges=spec.ignore_merges
        )
    if target in _WHOLE:
        # The writer has checked that both dialects read the expression alike.
        alike = dataclasses.replace(again.pattern, dialect=spec.pattern.dialect) == spec.pattern
        return dataclasses.replace(again, pattern=spec.pattern) if alike else again
    if [(t.content, t.id) for t in again.added_tokens] != [
        (t.content, t.id) for t in spec.added_tokens
    ]:
        return again
    return dataclasses.replace(
        again,
        added_tokens=spec.added_tokens,
        prefix_ids=spec.prefix_ids,
        suffix_ids=spec.suffix_ids,
    )


def _check_same_ids(one: Tokenizer, other: Tokenizer) -> None:
    among_letters = "".join(f"a {t.content}\u0301{t.content}b" for t in one.spec.added_tokens)
    traps, words = [GOLDEN_TEXT, *_TRAPS, among_letters], _words_of(one.spec)
    asked: list[tuple[Allowed, list[str]]] = [("all", traps + words)]
    # With "none", content tokens are still recognised. If a format loses them, it is reported.
    if one.spec.added_tokens == other.spec.added_tokens:
        asked.append(("none", traps))
    for allowed, texts in asked:
        ids, offsets = one.encode_batch_to_numpy(texts, allowed_special=allowed)
        others, other_offsets = other.encode_batch_to_numpy(texts, allowed_special=allowed)
        if not (np.array_equal(ids, others) and np.array_equal(offsets, other_offsets)):
            raise ConversionError(
                "what was written gives other ids when it is read back; nothing was kept"
            )


def _words_of(spec: TokenizerSpec) -> list[str]:
    """Each token, and each token joined with the next one: if their merges have another order, such
    pairs are split differently."""
    words = [token.decode(errors="ignore") for token in spec.vocab.values()]
    return [*words, *(f"{word}{other.lstrip()}" for word, other in pairwise(words))]


def _put_in_place(staged: list[Path], paths: list[Path], aside: Path) -> None:
    """Give the staged files their names: either all of them, or the earlier files stay.

    A pair never mixes old and new files, even after an interrupt: the old pair is moved aside
    first.
    """
    if len(paths) == 1:
        staged[0].replace(paths[0])
        return
    kept = [aside / f"old-{path.name}" for path in paths]
    try:
        for path, old in zip(paths, kept, strict=True):
            if path.exists():
                path.rename(old)
        for source, path in zip(staged, paths, strict=True):
            source.rename(path)
    except BaseException:
        for source, path, old in zip(staged, paths, kept, strict=True):
            if not source.exists():
                path.unlink(missing_ok=True)
            if old.exists():
                old.rename(path)
        raise


def not_carried(spec: TokenizerSpec, target: Target) -> list[str]:
    """The properties of `spec` that files of the format do not contain, in words."""
    chat = [f"the chat templates ({', '.join(spec.chat.sources)})"] if spec.chat.sources else []
    named = {"stop": spec.chat.stop_tokens, "named control": spec.chat.control_tokens}
    if target == "transformers":
        named["stop"] = tuple(t for t in named["stop"] if t not in spec.added_ids)
    declared = [f"the {kind} tokens ({len(tokens)})" for kind, tokens in named.items() if tokens]
    if target in _WHOLE:
        return [*(chat if target == "tokenizer.json" else []), *declared]
    left_out = [] if target == "pickle" else [f"the split pattern ({spec.pattern.name})"]
    if spec.added_tokens:
        which = "the special tokens" if target == "tiktoken" else "which tokens are special"
        left_out.append(f"{which} ({len(spec.added_tokens)})")
    n_content = sum(not token.special for token in spec.added_tokens)
    if n_content:
        left_out.append(
            f"that {n_content} of them are content, whatever special tokens are allowed"
        )
    if spec.batch_settings:
        left_out.append(f"the saved {' and '.join(spec.batch_settings)}")
    if spec.prefix_ids or spec.suffix_ids:
        left_out.append("the ids put around a text on request (add_special_tokens)")
    if template_steps(spec):
        left_out.append("the template for pairs")
    return left_out + chat + declared


def loading_lines(spec: TokenizerSpec, target: Target, paths: list[Path]) -> list[str]:
    """Lines of Python that load the files and pass the properties they do not contain: with this
    library, and with the library that defines the format.
    """
    names = ", ".join(repr(str(path)) for path in paths)
    pattern = _pattern_argument(spec, target)
    special = dict(spec.added_ids)
    ours = "tokenizer_core.Tokenizer."
    if target == "tokenizer.json":
        return [
            f"{ours}load({names})",
            f"tokenizers.Tokenizer.from_file({names})",
            f"transformers.PreTrainedTokenizerFast(tokenizer_file={names})",
        ]
    if target == "transformers":
        folder = repr(str(paths[0].parent))
        return [f"{ours}load({folder})", f"transformers.AutoTokenizer.from_pretrained({folder})"]
    if target == "pickle":
        return [f"{ours}from_files({names}, {list(special)})"]
    if target == "gpt2":
        return [f"{ours}from_files({names}, {list(special)}, pattern={pattern})"]
    lines = [f"{ours}from_tiktoken({names}, pattern={pattern}, special_tokens={special})"]
    if (in_tiktoken := _in_tiktoken(spec)) is not None:
        lines.append(
            f"tiktoken.Encoding({paths[0].stem!r}, pat_str={in_tiktoken!r}, "
            f"mergeable_ranks=tiktoken.load.load_tiktoken_bpe({names}), special_tokens={special})"
        )
    return lines


def _pattern_argument(spec: TokenizerSpec, target: Target) -> str:
    """The split pattern as Python; an expression alone if the reader takes it in that dialect."""
    if spec.pattern.name != CUSTOM:
        return repr(spec.pattern.name)
    dialect, unmatched = ("fancy-regex", "drop") if target == "tiktoken" else ("python", "keep")
    is_alone = not spec.pattern.has_steps
    if is_alone and (spec.pattern.dialect, spec.pattern.unmatched) == (dialect, unmatched):
        return repr(spec.pattern.expression)
    if spec.pattern.has_steps:
        # A repr would not name the module of the steps.
        fields = spec.pattern.fields()
        return f"tokenizer_core.splitting.patterns.SplitPattern.from_fields({fields})"
    return f"tokenizer_core.{spec.pattern!r}"


def _in_tiktoken(spec: TokenizerSpec) -> str | None:
    """The split pattern for tiktoken's engine; None if that might split otherwise."""
    if spec.pattern.name != CUSTOM:
        # There, `\Z` also matches before newlines, and `$` only at the end of the text.
        return spec.pattern.expression.replace(r"\Z", "$")
    drops = spec.pattern.drops and not spec.pattern.has_steps
    is_theirs = spec.pattern.dialect == "fancy-regex" and drops
    return spec.pattern.expression if is_theirs else None
