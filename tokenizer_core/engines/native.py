"""Thin adapters over the compiled module `tokenizer_core._native`: the engine and the trainer.

A single call splits, looks up and merges a text, including special tokens and batches. The module
can neither split by a pattern without an automaton nor decode objects other than ints; in these
cases this engine does the same as the Python engine, so the results are identical.

Training keeps counts packed in the compiled module between counting and learning. Its callers first
check with `resolve_engine` that the native engine is available.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from tokenizer_core import stopping
from tokenizer_core.blobs.local_files import system_file
from tokenizer_core.engines import base
from tokenizer_core.engines.base import BaseEngine, as_wanted, require_characters, require_text
from tokenizer_core.engines.protocol import ARRAYS, LISTS, CacheStatistics, EncodedDocuments
from tokenizer_core.engines.python_engine import join_tokens
from tokenizer_core.errors import EngineUnavailableError
from tokenizer_core.normalizers.forms import form_tables, normalize_nfc
from tokenizer_core.normalizers.nfc import Nfc
from tokenizer_core.normalizers.steps import replacements_of
from tokenizer_core.specials import trust
from tokenizer_core.specials.flags import FlaggedTokenMatcher
from tokenizer_core.specials.matcher import TrustedTokenMatcher
from tokenizer_core.specials.parts import normalized_parts
from tokenizer_core.splitting.patterns import PATTERNS, RULES
from tokenizer_core.stopping import StopFlag

try:
    import tokenizer_core._native as _native
except ImportError as error:
    _import_error: ImportError | None = error
else:
    _import_error = None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer_core._native import PretokenCounter, WordCounts
    from tokenizer_core.engines.protocol import EngineStreams, PackedModel, Row, Wanted
    from tokenizer_core.normalizers.step import NormalizerStep
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.trust import Segment
    from tokenizer_core.splitting.patterns import SplitPattern

_MODULE: Final = "tokenizer_core._native"
_STUB_PATH: Final = Path(__file__).parent.parent / "_native.pyi"
_KERNEL_VARIABLE: Final = "TOKENIZER_KERNEL"
_KERNELS: Final = ("avx512", "avx2", "neon", "portable")
_MAX_MATCHERS: Final = 64
_MAX_COUNT: Final = (1 << 64) - 1
_BATCH: Final = 1 << 16

# With more than one run of marks per this many characters, the whole text is normalized: this is
# about as fast and keeps the list of runs small.
_CHARS_PER_RUN: Final = 128

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _is_stale(stub_path: Path) -> bool:
    """Whether the module was compiled for a different version of this Python code.

    The stub is the contract between the two. Comparing it makes a version number unnecessary. The
    comparison ignores line endings, which may differ in a checkout. Without an installed stub, the
    module and its callers came in one package.
    """
    try:
        stub = stub_path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    # A module compiled before `STUB` existed does not have it.
    return getattr(_native, "STUB", "").splitlines() != stub.splitlines()


# Compare once, at import: this process keeps its code even if another version is checked out.
_stale: Final = _import_error is None and _is_stale(_STUB_PATH)

# Read once, at import, because the compiled module chooses its kernel then.
_asked_kernel: Final = os.environ.get(_KERNEL_VARIABLE, "")


def is_installed() -> bool:
    """Whether the compiled module is in this installation, whether or not it can run."""
    return not (isinstance(_import_error, ModuleNotFoundError) and _import_error.name == _MODULE)


def unavailable_reason() -> str | None:
    """The reason why the native engine cannot run here, for readers; None if it can."""
    if not is_installed():
        return (
            f"the compiled module {_MODULE} is not in this installation: it was installed without "
            "a Rust toolchain, or the build failed. Install it again with "
            "TOKENIZER_REQUIRE_NATIVE=1 in the environment to see why"
        )
    if _import_error is not None:
        # The loader's message begins with the path of the file, which the service must not publish.
        message = str(_import_error).replace(f"{_import_error.path}: ", "")
        return f"the compiled module {_MODULE} does not load: {message}"
    if _stale:
        return (
            f"the compiled module {_MODULE} was built for another version of this code and its "
            "calls may differ. Build it again: `make setup` in a checkout, elsewhere install the "
            "package again"
        )
    return None


def check_kernel(*, is_used: bool) -> None:
    """Check the kernel that TOKENIZER_KERNEL names. `is_used`: whether the native engine runs.

    Raises:
        EngineUnavailableError: there is no such kernel, or this processor does not have the one
            that is to run.
    """
    if _asked_kernel not in ("", *_KERNELS):
        raise EngineUnavailableError(
            f"{_KERNEL_VARIABLE} names no kernel: it is {_asked_kernel!r:.40}, and may be "
            f"{', '.join(_KERNELS[:-1])} or {_KERNELS[-1]}; unset it for the fastest one"
        )
    # The compiled module would run its fastest kernel, and a comparison would compare it with
    # itself.
    if is_used and _asked_kernel and _asked_kernel != _native.KERNEL:
        raise EngineUnavailableError(
            f"{_KERNEL_VARIABLE} is {_asked_kernel}, which this processor does not have; its "
            f"fastest is {_native.KERNEL}, which runs if the variable is unset"
        )


def decode_json_string(document: bytes, start: int) -> tuple[str, int] | None:
    """Decode the JSON string whose opening quote is at `start`; also returns the index after it.

    None if no valid string begins there; a lone surrogate is invalid. Requires the compiled module.
    """
    return _native.decode_json_string(document, start)


def json_of_ids(ids: NDArray[np.uint32]) -> bytes:
    """Ids of shape (n_tokens,) as a JSON array without white space; no id becomes a Python int if
    the compiled module is available."""
    if unavailable_reason() is not None:
        return base.json_of_ids(ids)
    if ids.dtype != np.uint32 or not ids.flags.aligned:
        ids = np.require(ids, np.uint32, ["ALIGNED"])
    return _native.json_of_ids(ids)


def join_segments(segments: Iterable[Segment]) -> tuple[str, list[tuple[int, int]]]:
    """As `trust.join_segments`, by the compiled module if it is available."""
    listed = segments if type(segments) is list else list(segments)
    joined = _native.join_segments(listed) if unavailable_reason() is None else None
    return trust.join_segments(listed) if joined is None else joined


def read_json_natively(
    document: bytes, *, most_values: int, most_containers: int
) -> tuple[object] | None:
    """The value of a document of strict JSON, alone in a tuple. Requires the compiled module.

    None if it is left to `strict_json.read_json`, which names every error: it is invalid, or has
    more strings, keys, arrays and objects than `most_values`, or more numbers and words outside
    arrays of integers, more arrays and objects than `most_containers`, nesting over 8 levels, or
    numbers that need Python. Other threads run meanwhile.
    """
    return _native.read_json(document, most_values, most_containers)


def read_packed_model(document: bytes) -> tuple[bytes, PackedModel] | None:
    """A `tokenizer.json` without the entries and merges of its model, and these packed.

    As `read_rank_lines` and `read_tekken_entries`: None if the compiled module is not available, or
    if anything is not as it should be. Then read the whole document, which names it.
    """
    return _native.read_model(document) if unavailable_reason() is None else None


def read_rank_lines(document: bytes) -> dict[bytes, int] | None:
    """The ranks of a `.tiktoken` file."""
    return _native.read_ranks(document) if unavailable_reason() is None else None


def left_sizes(tokens: list[bytes]) -> list[int] | None:
    """How many bytes the left side of the merge has that makes each of these tokens, all different
    and in the order of their ranks; 0 if no merge does.

    None if the compiled module is not available, or if one of the 256 bytes is no token.
    """
    sizes = _native.left_sizes(tokens) if unavailable_reason() is None else None
    return None if sizes is None else sizes.tolist()


def read_tekken_entries(document: bytes) -> tuple[bytes, list[bytes]] | None:
    """A `tekken.json` with an empty `vocab`, and its tokens, whose ranks are their positions."""
    return _native.read_tekken(document) if unavailable_reason() is None else None


class _NativeStopFlag(StopFlag):
    """Also seen by calls of the compiled module."""

    def __init__(self) -> None:
        super().__init__()
        self.native = _native.StopFlag()

    def cancel(self) -> None:
        super().cancel()
        self.native.set()


def make_stop_flag() -> StopFlag:
    """A new flag for `stoppable`."""
    return _NativeStopFlag() if unavailable_reason() is None else StopFlag()


@contextmanager
def stoppable(flag: StopFlag) -> Iterator[None]:
    """Within, calls of any engine on this thread look at `flag`.

    After `flag.cancel()` from another thread they raise CancelledError: the native engine within
    milliseconds, also in the threads of a batch and within one long pre-token, the Python engine
    after some 64 kB of text. Texts of a few kilobytes may be encoded to their end.

    Example:
        >>> from tokenizer_core.engines import make_stop_flag, stoppable
        >>> flag = make_stop_flag()
        >>> with stoppable(flag):
        ...     flag.is_cancelled
        False
    """
    before, stopping.current.flag = stopping.current.flag, flag
    if not isinstance(flag, _NativeStopFlag):
        try:
            yield
        finally:
            stopping.current.flag = before
        return
    native_before = _native.look_at(flag.native)
    try:
        yield
    finally:
        stopping.current.flag = before
        _native.look_at(native_before)


class NativeEngine(BaseEngine):
    """Encodes and decodes for one spec; see `protocol.Engine`. Safe to share between threads."""

    name = "native"
    has_threads = True

    def __init__(self, spec: TokenizerSpec) -> None:
        """Raises EngineUnavailableError if the compiled module is missing or does not match."""
        reason = unavailable_reason()
        if reason is not None:
            raise EngineUnavailableError(f"there is no native engine: {reason}")
        super().__init__(spec)
        pattern = compiled_pattern(spec.pattern)
        self._is_compiled = pattern is not None
        self._vocab = spec.vocab
        self._encoder = _native.NativeEncoder(
            _plain_dict(spec.vocab),
            _plain_dict(spec.token_to_id),
            spec.merge_ids.reshape(-1) if spec.kind == "merges" else None,
            spec.kind == "ranks" or spec.ignore_merges,
            pattern,
            by_characters=spec.alphabet.has_characters,
            missing=_missing_of(spec),
            word_ends=spec.word_end_ids() or None,
        )
        normalizer = spec.normalizer
        self._is_nfc = isinstance(normalizer, Nfc)
        puts_spaces = self._is_compiled and not (self._is_nfc or normalizer.steps)
        self._specials = _SpecialsOfMatchers(
            self._added, normalizer.name if puts_spaces else "none"
        )
        if self._is_nfc:
            self.normalize = normalize_near_marks
        elif (compiled := compiled_normalizer(normalizer.steps)) is not None:
            self.normalize = partial(_normalize, compiled)

    def encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any]
    ) -> Callable[[str], Any]:
        if not self._is_compiled:
            return super().encoder(matcher, wanted)
        if matcher is not None and self._is_cut(matcher):
            return partial(self._encode_cut, matcher, wanted)
        specials, has_affixes = self._specials[matcher], wanted.prefix_ids or wanted.suffix_ids
        run: Callable[[str], Any]
        if wanted.kind == "json":
            affixes = wanted.prefix_ids, wanted.suffix_ids
            run = partial(self._encoder.encode_to_json, specials, *affixes)
        elif wanted.kind == "count":
            run = partial(self._encoder.count, specials, wanted.limit)
        elif wanted.kind == "list" and not has_affixes:
            run = partial(self._encoder.encode, specials)
        else:
            run = partial(self._encoder.encode_to_numpy, specials, wanted.num_threads)
            if has_affixes:
                run = partial(_apply, run, wanted)
        if matcher is None or not self._is_nfc:
            return run
        return partial(self._encode_in_nfc, matcher, wanted, run)

    def _is_cut(self, matcher: SpecialTokenMatcher) -> bool:
        """Whether Python finds the added tokens, because the module does not change the parts
        between them, or because they have flags and are found within runs, or because there are two
        lists of runs."""
        if self._spec.normalizer.steps:
            return True
        if not isinstance(matcher, TrustedTokenMatcher):
            return False
        return matcher.has_flags or len(matcher.trusts) > 1

    def _encode_cut(self, matcher: SpecialTokenMatcher, wanted: Wanted[Any], text: str) -> Any:
        """The normalized parts of the text in one call, and the added tokens between them."""
        require_characters(text)
        parts = list(normalized_parts(self._spec, matcher, text, self.normalize))
        arrays = ARRAYS._replace(num_threads=wanted.num_threads)
        ids, offsets = self.encode_batch([plain for plain, _ in parts], None, arrays)
        added = [self._added[token] for _, token in parts if token is not None]
        if added:
            ids = np.insert(ids, offsets[1:-1].astype(np.int64), np.array(added, dtype=np.uint32))
        return as_wanted(ids, wanted)

    def _encode_in_nfc(
        self,
        matcher: SpecialTokenMatcher,
        wanted: Wanted[Any],
        run: Callable[[str], Any],
        text: str,
    ) -> Any:
        """Added tokens are found in the text as given, and the text between them is normalized."""
        require_text(text)
        normalized = self.normalize(text)
        if normalized is text:
            return run(text)
        if matcher.may_match(text):
            return self._encode_cut(matcher, wanted, text)
        return self.encode(normalized, None, wanted)

    def encode_batch(
        self,
        texts: Sequence[Any],
        matcher: SpecialTokenMatcher | None = None,
        wanted: Wanted[Any] = LISTS,
    ) -> Any:
        if not self._is_compiled or (matcher is not None and self._is_cut(matcher)):
            return super().encode_batch(texts, matcher, wanted)
        if self._is_nfc and matcher is not None:
            is_utf8 = wanted.kind == "documents"
            decoded = map(bytes.decode, texts) if is_utf8 else texts
            if any(self.normalize(text) is not text for text in decoded):
                return super().encode_batch(texts, matcher, wanted)
        specials = self._specials[matcher]
        if wanted.kind == "documents":
            begin, end = wanted.prefix_ids[:1] or (None,), wanted.suffix_ids[:1] or (None,)
            affixes, as_uint16 = (begin[0], end[0]), wanted.as_uint16
            arrays = self._encoder.encode_documents(specials, affixes, as_uint16, list(texts))
            return EncodedDocuments(*arrays)
        n_threads = 1 if wanted.num_threads is None else max(1, wanted.num_threads)
        if wanted.kind == "list":
            return self._encoder.encode_batch(specials, n_threads, list(texts))
        return self._encoder.encode_batch_to_numpy(specials, n_threads, list(texts))

    def decode(
        self, ids: Iterable[int] | NDArray[np.integer], errors: str | None = "replace"
    ) -> Any:
        decoded = self._decode(ids, as_text=errors is not None)
        if isinstance(decoded, str) or errors is None:
            return decoded
        return decoded.decode("utf-8", errors)

    def _decode(self, ids: Iterable[int] | NDArray[np.integer], *, as_text: bool) -> bytes | str:
        """The bytes of `ids`; a str if one was requested and the module made it."""
        if isinstance(ids, np.ndarray):
            fitting = _as_uint32(ids)
            if fitting is not None:
                try:
                    return self._encoder.decode_array(fitting, as_text)
                except _native.UnknownIdError:
                    pass  # a list makes the error name the original id
            ids = ids.tolist()
        listed = ids if type(ids) is list else list(ids)
        try:
            return self._encoder.decode_list(listed, as_text)
        except _native.UnknownIdError:
            # Names the id; or joins integers of other types, and empty tokens, which the module
            # takes for gaps. Another thread may change the caller's list meanwhile.
            return join_tokens(self._vocab, list(listed))

    def decode_batch(
        self, rows: list[Row], num_threads: int | None = None, *, skip_special: bool = False
    ) -> list[str] | None:
        n_threads = 1 if num_threads is None else max(1, num_threads)
        return self._encoder.decode_batch(rows, self._text_rules, skip_special, n_threads)

    def first_drifts(
        self, rows: list[Row], matcher: SpecialTokenMatcher, num_threads: int | None = None
    ) -> NDArray[np.int64] | None:
        is_known = self._is_nfc or self._spec.normalizer.name == "none"
        if not self._is_compiled or not is_known or matcher.has_flags:
            return None
        n_threads = 1 if num_threads is None else max(1, num_threads)
        specials, is_nfc = self._specials[matcher], self._is_nfc
        return self._encoder.first_drifts(rows, self._text_rules, specials, is_nfc, n_threads)

    def decode_streams(self) -> EngineStreams | None:
        return _native.NativeDecodeStreams(self._encoder, self._text_rules)

    @cached_property
    def _text_rules(self) -> _native.NativeTextRules:
        spec = self._spec
        special = list(spec.special_tokens.values())
        return _native.NativeTextRules(
            self._encoder,
            [id_ for id_ in spec.alphabet.byte_ids if id_ >= 0],
            special,
            list(spec.empty_ids),
            spec.normalizer.strips_space,
        )

    def cache_statistics(self) -> CacheStatistics:
        # Of the cache that all calls share, not of the one for pieces of 32 bytes and more.
        return CacheStatistics(*self._encoder.cache_statistics())

    def _tokens_of(self, pre_tokens: Sequence[str]) -> list[list[int]]:
        return [self._encoder.encode_pre_tokens(pre_tokens)]


def normalize_near_marks(text: str, *, is_first: bool = True, continues: bool = False) -> str:
    """As `normalize_nfc`, of the parts that NFC may change; `text` itself if it is in NFC. Requires
    the compiled module.

    Raises:
        UnicodeEncodeError: the text contains a lone surrogate.
    """
    del is_first, continues
    runs = _native.nfc_runs(text, len(text) // _CHARS_PER_RUN + 1)
    if runs is None:
        normalized = normalize_nfc(text)
        return text if normalized == text else normalized
    parts, at = [], 0
    for start, end in runs:
        part = text[max(start - 1, 0) : end]
        normalized = normalize_nfc(part)
        if normalized != part:
            parts += [text[at : max(start - 1, 0)], normalized]
            at = end
    return "".join([*parts, text[at:]]) if parts else text


def _normalize(
    compiled: _native.NativeNormalizer, text: str, *, is_first: bool = True, continues: bool = False
) -> str:
    del is_first
    return compiled.normalize(text, is_first=not continues)


def _apply(run: Callable[[str], Any], wanted: Wanted[Any], text: str) -> Any:
    return as_wanted(run(text), wanted)


def compiled_pattern(pattern: SplitPattern) -> str | _native.NativeAutomaton | None:
    """What the compiled module splits by: the name of a scanner, or the pattern's automaton. None
    if it has neither, so that Python splits."""
    if pattern.name in PATTERNS:
        return pattern.name
    automaton = pattern.automaton
    if automaton is None:
        return None
    steps = zip(automaton.moves, automaton.steps, strict=True)
    return _native.NativeAutomaton(
        automaton.firsts.tolist(),
        automaton.numbers.tobytes(),
        [(moves.ravel().tolist(), *settings) for moves, settings in steps],
        automaton.cuts.ravel().tolist(),
        RULES.get(pattern),
    )


def compiled_normalizer(steps: Sequence[NormalizerStep]) -> _native.NativeNormalizer | None:
    """What runs these steps in the compiled module; None if there are none, or if Python must find
    the matches of one, whose expression has no automaton."""
    tables = [_tables_of_step(step) for step in steps]
    known = [table for table in tables if table is not None]
    return _native.NativeNormalizer(known) if known and len(known) == len(tables) else None


def _tables_of_step(step: NormalizerStep) -> _native._StepTables | None:
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return "form", *form_tables(step.kind)
        case "Lowercase" | "StripAccents":
            return "map", list(replacements_of(step.kind).items())
        case "Strip":
            return "strip", step.strips_left, step.strips_right
        case "Prepend":
            return "prepend", step.content
        case "Replace" if not step.is_regex:
            return "replace", step.pattern, step.content
        case "Replace":
            pattern = compiled_pattern(replace(step.split_pattern, unmatched="drop"))
            return None if pattern is None else ("replace", pattern, step.content)


class _SpecialsOfMatchers(dict["SpecialTokenMatcher | None", "_native.NativeSpecials | None"]):
    """The compiled form of the most recently used matchers; bounded, because requests may name any
    set of tokens."""

    def __init__(self, ids: Mapping[str, int], normalizer: str) -> None:
        self._ids, self._normalizer = ids, normalizer
        self[None] = None

    def __missing__(self, matcher: SpecialTokenMatcher) -> _native.NativeSpecials | None:
        if isinstance(matcher, TrustedTokenMatcher):  # of one text: not kept
            if matcher.has_flags or len(matcher.trusts) > 1:
                raise ValueError(
                    "the module finds tokens within one list of runs, and none with flags; cut "
                    "the text with the matcher first"
                )
            everywhere, guarded = self[matcher.everywhere], self[matcher.guarded[0]]
            both = self[matcher.matcher]
            if everywhere is not None and guarded is not None and both is not None:
                return everywhere.with_trusted(guarded, both, matcher.trusts[0].runs)
        ids = {content: self._ids[content] for content in matcher.contents}
        if isinstance(matcher, FlaggedTokenMatcher):
            words = list(matcher.word_characters)
            made = _native.NativeSpecials(ids, self._normalizer, matcher.flags_by_pass, words)
        else:
            made = _native.NativeSpecials(ids, self._normalizer)
        if len(self) > _MAX_MATCHERS:
            self.pop(next(known for known in list(self) if known is not None), None)
        self[matcher] = made
        return made


def _missing_of(spec: TokenizerSpec) -> tuple[bytes, int | None, bool, bytes] | None:
    missing = spec.alphabet.missing
    if missing is None:
        return None
    return bytes(missing.values), missing.unk_id, missing.is_fused, bytes(missing.ends)


def _plain_dict(mapping: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
    """A dict of `mapping`. Copies a proxy in one step; `dict` would look up each key."""
    return mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)


def _as_uint32(ids: NDArray[np.integer]) -> NDArray[np.uint32] | None:
    """The same ids as uint32; None if that would change one, or if they are not one-dimensional."""
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        return None
    if ids.dtype != np.uint32 and ids.size and (ids.min() < 0 or ids.max() > 0xFFFF_FFFF):
        return None
    if not ids.size:
        return np.empty(0, np.uint32)  # NumPy calls an empty array aligned at any address
    # The module reads aligned words in place.
    return np.require(ids, np.uint32, ["ALIGNED"])


class NativeCounts(Mapping[str, int]):
    """Pre-token -> occurrences, stored by the compiled module. Equal to a dict of the same entries.

    Pickling makes a dict.
    """

    def __init__(self, words: WordCounts) -> None:
        self._words = words
        self._entries: dict[str, int] | None = None

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> NativeCounts:
        """Pack `counts`; returns them unchanged if they are already packed.

        Raises:
            ValueError: a count is below 1, or does not fit 64 bits.
        """
        if isinstance(counts, NativeCounts):
            return counts
        from tokenizer_core._native import WordCounts

        for pre_token, count in counts.items():
            if count < 1:
                raise ValueError(f"the pre-token {pre_token!r:.60} has the count {count}, below 1")
            if count >= 1 << 64:
                raise ValueError(f"the count of {pre_token!r:.60} does not fit 64 bits")
        return cls(WordCounts.from_dict(counts if isinstance(counts, dict) else dict(counts)))

    @property
    def n_pre_tokens(self) -> int:
        """Pre-tokens, repetitions included."""
        return self._words.n_pre_tokens

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of all pre-tokens, repetitions included."""
        return self._words.n_bytes

    def sorted(self) -> NativeCounts:
        """The same counts, sorted by pre-token. Under a memory ceiling they are already sorted."""
        return NativeCounts(self._words.sorted())

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all pre-tokens, each once."""
        return self._words.text_bytes()

    def columns(self) -> tuple[Iterator[bytes], Iterator[bytes], Iterator[bytes]]:
        """The columns of a file of counts, sorted and in blocks; see `training.counts`."""
        ordered = self.sorted()
        # Each column makes its own pass, so no column is ever completely in memory.
        return (
            (lengths for lengths, _, _ in ordered._blocks()),
            (counts for _, counts, _ in ordered._blocks()),
            (text for _, _, text in ordered._blocks()),
        )

    def _blocks(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        position = 0
        while True:
            lengths, counts, text, position = self._words.columns(position, _BATCH)
            if not lengths:
                return
            yield lengths, counts, text

    def entries(self) -> Iterator[tuple[str, int]]:
        """Iterate over the entries, without making a dict."""
        for lengths, counts, joined in self._blocks():
            text, start = joined.decode(), 0
            sizes = struct.iter_unpack("<I", lengths)
            for (size,), (count,) in zip(sizes, struct.iter_unpack("<Q", counts), strict=True):
                yield text[start : start + size], count
                start += size

    def learn(
        self,
        n_merges: int,
        tie_break: str,
        after_merge: Callable[[int], object] | None,
        *,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        first_merges: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[list[tuple[bytes, bytes]], bool, list[int]]:
        """`(merges, whether no pair was left, tokens after each merge)`; see `learn_merges`.

        `after_merge` is called several times a second and after the last merge.
        """
        return self._words.learn(
            n_merges,
            tie_break,
            after_merge,
            # No count can be larger: the sum of all symbols fits 64 bits.
            min(min_frequency, _MAX_COUNT),
            None if max_token_length is None else min(max_token_length, _MAX_COUNT),
            list(first_merges),
        )

    def __getitem__(self, pre_token: str) -> int:
        return self._dict[pre_token]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._words)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._dict,)

    @property
    def _dict(self) -> dict[str, int]:
        if self._entries is None:
            self._entries = self._words.to_dict()
        return self._entries


class ChunkFailedError(Exception):
    """The first chunk that could not be counted; `number` is the index of its `submit` call."""

    def __init__(self, number: int) -> None:
        super().__init__(f"chunk {number} could not be counted")
        self.number = number


class NativeCounter:
    """Counts chunks of open files in threads; a context manager that stops the threads.

    Special tokens are cut out first: the leftmost match, the longest of equals. Chunks must be
    UTF-8.
    """

    def __init__(
        self,
        pattern: SplitPattern,
        special_tokens: Sequence[str],
        num_threads: int,
        ceiling: tuple[int, str] | None = None,
    ) -> None:
        """`ceiling`: limit in bytes of all tables together, and the folder for further counts.

        Raises ValueError for a pattern without a scanner and without an automaton.
        """
        from tokenizer_core._native import PretokenCounter

        compiled = compiled_pattern(pattern)
        if compiled is None:
            raise ValueError("the native engine cannot split by this pattern")

        self._counter: PretokenCounter = PretokenCounter(
            compiled, list(special_tokens), num_threads, ceiling
        )

    def __enter__(self) -> NativeCounter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._counter.close()

    def submit(self, descriptor: int, start: int, end: int) -> bool:
        """Queue the bytes from `start` to `end` of an open file, which may be closed afterwards.

        Blocks while enough chunks are queued. Returns False once a chunk has failed and no more are
        needed.
        """
        return self._counter.submit(system_file(descriptor), start, end)

    def bytes_done(self) -> int:
        """The number of bytes in the chunks counted so far."""
        return self._counter.bytes_done()

    def finish(self) -> tuple[NativeCounts, int, int]:
        """The counts of all chunks, the number of documents (stretches of text between special
        tokens, each counted in the chunk where it begins), and how often a table was written to
        disk.

        Raises:
            ChunkFailedError: a chunk is not UTF-8 or could not be read to its end.
            OSError: the folder of the ceiling is full or unusable.
        """
        from tokenizer_core._native import UncountableChunkError

        try:
            words, n_documents, n_spills = self._counter.finish()
        except UncountableChunkError as error:
            raise ChunkFailedError(error.args[0]) from None
        return NativeCounts(words), n_documents, n_spills
