"""The native engine: a thin adapter over the compiled module.

A single call splits, looks up and merges a text, including special tokens and batches. The module
can neither split by a pattern without an automaton nor decode objects other than ints; in these
cases this engine does the same as the Python engine, so the results are identical.
"""

from __future__ import annotations

from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tokenizer_core.blobs.local_files import system_file
from tokenizer_core.engines.base import (
    BaseEngine,
    join_tokens,
    list_ids,
    require_characters,
    require_text,
)
from tokenizer_core.engines.native_import import native, unavailable_reason
from tokenizer_core.engines.native_stages import (
    compiled_normalizer,
    compiled_pattern,
    normalize_near_marks,
)
from tokenizer_core.engines.protocol import (
    ARRAYS,
    LISTS,
    CacheStatistics,
    EncodedDocuments,
    is_array,
)
from tokenizer_core.errors import EngineUnavailableError
from tokenizer_core.normalizers.nfc import Nfc
from tokenizer_core.specials.flags import FlaggedTokenMatcher
from tokenizer_core.specials.matcher import TrustedTokenMatcher
from tokenizer_core.specials.parts import normalized_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import BodyEncoder, EngineStreams, Row, Wanted
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.matcher import SpecialTokenMatcher

_MAX_MATCHERS: Final = 64

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class NativeEngine(BaseEngine):
    """Encodes and decodes for one spec; see `protocol.Engine`. Safe to share between threads."""

    name = "native"
    has_threads = True

    def __init__(self, spec: TokenizerSpec, encoder: native.NativeEncoder | None = None) -> None:
        """`encoder`: the one of a compiled file; without it, one is built.

        Raises EngineUnavailableError if the compiled module is missing or does not match.
        """
        reason = unavailable_reason()
        if reason is not None:
            raise EngineUnavailableError(f"there is no native engine: {reason}")
        super().__init__(spec, native.json_of_ids)
        self._is_compiled = True
        if encoder is None:
            pattern = compiled_pattern(spec.pattern)
            self._is_compiled = pattern is not None
            encoder = _build_encoder(spec, pattern)
        self._encoder = encoder
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

    def compile(self, key: bytes, extras: dict[str, bytes]) -> bytes | None:
        """The content of a compiled file; None if Python splits the texts."""
        return native.compile_tokenizer(self._encoder, key, extras) if self._is_compiled else None

    def _inner_encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any]
    ) -> Callable[[str], Any]:
        if not self._is_compiled:
            return super()._inner_encoder(matcher, wanted)
        if matcher is not None and self._is_cut(matcher):
            return partial(self._encode_cut, matcher, wanted)
        specials = self._specials[matcher]
        run: Callable[[str], Any]
        if wanted.kind == "json":
            run = partial(self._encoder.encode_to_json, specials)
        elif wanted.kind == "count":
            run = partial(self._encoder.count, specials, wanted.limit)
        elif wanted.kind == "list":
            run = partial(self._encoder.encode, specials)
        else:
            run = partial(self._encoder.encode_to_numpy, specials, wanted.num_threads)
        if matcher is None or not self._is_nfc:
            return run
        return partial(self._encode_in_nfc, matcher, wanted, run)

    def body_encoder(
        self, matcher_of: Callable[[bytes], SpecialTokenMatcher | None]
    ) -> BodyEncoder:
        def specials_of(options: bytes) -> native.NativeSpecials | None:
            matcher = matcher_of(options)
            is_left = matcher is None or self._is_nfc or self._is_cut(matcher)
            return None if is_left or not self._is_compiled else self._specials[matcher]

        return partial(self._encoder.encode_body, _Recent(specials_of))

    def _is_cut(self, matcher: SpecialTokenMatcher) -> bool:
        """Whether Python finds the added tokens, because the module does not change the parts
        between them, or because it does not find them."""
        return bool(self._spec.normalizer.steps) or not matcher.is_for_engines

    def _encode_cut(self, matcher: SpecialTokenMatcher, wanted: Wanted[Any], text: str) -> Any:
        """The normalized parts of the text in one call, and the added tokens between them."""
        import numpy as np

        require_characters(text)
        parts = list(normalized_parts(self._spec, matcher, text, self.normalize))
        arrays = ARRAYS._replace(num_threads=wanted.num_threads)
        ids, offsets = self.encode_batch([plain for plain, _ in parts], None, arrays)
        added = [self._added[token] for _, token in parts if token is not None]
        if added:
            ids = np.insert(ids, offsets[1:-1].astype(np.int64), np.array(added, dtype=np.uint32))
        return self._as_wanted(ids, wanted)

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
            (begin,), (end,) = wanted.prefix_ids or (None,), wanted.suffix_ids or (None,)
            as_uint16, documents = wanted.as_uint16, list(texts)
            arrays = self._encoder.encode_documents(specials, (begin, end), as_uint16, documents)
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
        if is_array(ids):
            fitting = _as_uint32(ids)
            if fitting is not None:
                try:
                    return self._encoder.decode(fitting, as_text)
                except native.UnknownIdError:
                    pass  # a list makes the error name the original id
            ids = ids.tolist()
        listed = ids if type(ids) is list else list_ids(ids)
        try:
            return self._encoder.decode(listed, as_text)
        except native.UnknownIdError:
            # Names the id; or joins integers of other types, and empty tokens, which the module
            # takes for gaps. Another thread may change the caller's list meanwhile.
            return join_tokens(self._spec.vocab, list(listed))

    def token_sizes(self) -> NDArray[np.uint32]:
        return self._encoder.token_sizes()

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
        return native.NativeDecodeStreams(self._encoder, self._text_rules)

    @cached_property
    def _text_rules(self) -> native.NativeTextRules:
        spec = self._spec
        special = list(spec.special_tokens.values())
        return native.NativeTextRules(
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


def open_compiled(descriptor: int, key: bytes) -> native.CompiledTokenizer | None:
    """The content of an open compiled file of this key; None if it cannot be used."""
    try:
        return native.CompiledTokenizer(system_file(descriptor), key)
    except native.UnusableFileError:
        return None


def _build_encoder(
    spec: TokenizerSpec, pattern: str | native.NativeAutomaton | None
) -> native.NativeEncoder:
    missing = spec.alphabet.missing
    return native.NativeEncoder(
        _plain_dict(spec.vocab),
        _plain_dict(spec.token_to_id),
        spec.merge_ids.tobytes() if spec.kind == "merges" else None,
        spec.kind == "ranks" or spec.ignore_merges,
        pattern,
        by_characters=spec.alphabet.has_characters,
        missing=None
        if missing is None
        else (bytes(missing.values), missing.unk_id, missing.is_fused, bytes(missing.ends)),
        word_ends=spec.word_end_ids() or None,
    )


def _normalize(
    compiled: native.NativeNormalizer, text: str, *, is_first: bool = True, continues: bool = False
) -> str:
    del is_first
    return compiled.normalize(text, begins_part=not continues)


class _Recent(dict[_Key, _Value]):
    """The results of a function, by its argument; bounded, because requests choose the argument."""

    def __init__(self, function: Callable[[_Key], _Value]) -> None:
        self._function = function

    def __missing__(self, key: _Key) -> _Value:
        if len(self) >= _MAX_MATCHERS:
            self.clear()
        value = self[key] = self._function(key)
        return value


class _SpecialsOfMatchers(dict["SpecialTokenMatcher | None", "native.NativeSpecials | None"]):
    """The compiled form of the most recently used matchers; bounded, because requests may name any
    set of tokens."""

    def __init__(self, ids: Mapping[str, int], normalizer: str) -> None:
        self._ids, self._normalizer = ids, normalizer
        self[None] = None

    def __missing__(self, matcher: SpecialTokenMatcher) -> native.NativeSpecials | None:
        if isinstance(matcher, TrustedTokenMatcher):  # of one text: not kept
            everywhere, guarded = self[matcher.everywhere], self[matcher.guarded[0]]
            if everywhere is not None and guarded is not None:
                return everywhere.with_trusted(guarded, matcher.trusts[0].runs)
        ids = {content: self._ids[content] for content in matcher.contents}
        if isinstance(matcher, FlaggedTokenMatcher):
            words = list(matcher.word_characters)
            made = native.NativeSpecials(ids, self._normalizer, matcher.flags_by_pass, words)
        else:
            made = native.NativeSpecials(ids, self._normalizer)
        if len(self) > _MAX_MATCHERS:
            self.pop(next(known for known in list(self) if known is not None), None)
        self[matcher] = made
        return made


def _plain_dict(mapping: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
    """A dict of `mapping`. Copies a proxy in one step; `dict` would look up each key."""
    return mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)


def _as_uint32(ids: NDArray[np.integer]) -> NDArray[np.uint32] | None:
    """The same ids as uint32; None if that would change one, or if they are not one-dimensional."""
    import numpy as np

    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        return None
    if ids.dtype != np.uint32 and ids.size and (ids.min() < 0 or ids.max() > 0xFFFF_FFFF):
        return None
    if not ids.size:
        return np.empty(0, np.uint32)  # NumPy calls an empty array aligned at any address
    return np.require(ids, np.uint32, ["ALIGNED", "C_CONTIGUOUS"])
