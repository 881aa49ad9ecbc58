"""tiktoken's interface: `from tokenizer_core.compat import tiktoken` replaces `import tiktoken`.

Names, defaults, ids and exceptions are those of tiktoken 0.14; its own tests pass. The vocabularies
are this library's presets, whose files `tokenizer pull NAME` fetches: nothing is downloaded here.

Differences: of special tokens that begin alike the longest is found, where tiktoken may take
either; `encode_to_numpy` and `encode_with_unstable` replace lone surrogates too; expressions that
cannot be split exactly as tiktoken does are refused.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from functools import cache, cached_property, partial
from itertools import accumulate, islice, pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from tokenizer_core.engines.base import require_text
from tokenizer_core.errors import SpecialTokenForbiddenError, UnknownTokenIdError
from tokenizer_core.presets import PRESETS, load_preset_spec, preset_of_model
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.alphabet import is_utf8
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.specials.policy import forbid, resolve_policy
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray

    Allowed = Literal["all"] | AbstractSet[str]
    Disallowed = Literal["all"] | Collection[str]

__all__ = [
    "Encoding",
    "encoding_for_model",
    "encoding_name_for_model",
    "get_encoding",
    "list_encoding_names",
]

_Ids = TypeVar("_Ids")
_NONE: Final[frozenset[str]] = frozenset()
_SPACES: Final = b" \n\t"


class Encoding:
    """A tokenizer with tiktoken's methods; immutable and thread-safe.

    The arguments are those of `tiktoken.Encoding`. `pat_str` is an expression as tiktoken reads it:
    text without a match is dropped.

    Raises:
        InvalidSpecError: ranks and special tokens do not form a tokenizer.
        UnknownPatternError: the expression cannot be translated exactly.
        ValueError: `explicit_n_vocab` is not the size of the vocabulary.

    Example:
        >>> encoding = get_encoding("gpt2")
        >>> encoding.encode("hello world"), encoding.decode([31373, 995])
        ([31373, 995], 'hello world')
    """

    _is_preset = False

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        spec = TokenizerSpec.from_ranks(mergeable_ranks, special_tokens, pattern=pat_str)
        n_tokens = len(mergeable_ranks) + len(special_tokens)
        if explicit_n_vocab and not n_tokens == spec.largest_id + 1 == explicit_n_vocab:
            raise ValueError(
                f"explicit_n_vocab is {explicit_n_vocab}, but there are {n_tokens} tokens, and the "
                f"largest id is {spec.largest_id}; leave it out, or correct the vocabulary"
            )
        self._set_up(name, spec, pat_str)

    @classmethod
    @cache
    def _of_preset(cls, name: str) -> Encoding:
        encoding = cls.__new__(cls)
        encoding._is_preset = True
        spec = load_preset_spec(name)
        # The same expression in tiktoken's dialect: `$` there is `\Z` here.
        encoding._set_up(name, spec, spec.pattern.expression.replace(r"\Z", "$"))
        return encoding

    def _set_up(self, name: str, spec: TokenizerSpec, pat_str: str) -> None:
        self.name = name
        self.tokenizer = Tokenizer.from_spec(spec)
        """The tokenizer that computes the ids; not in tiktoken."""
        self.max_token_value = spec.largest_id
        self._pat_str = pat_str
        self._special_tokens = dict(spec.special_tokens)
        self._special_ids = frozenset(self._special_tokens.values())
        self._special = frozenset(self._special_tokens)

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_preset:
            return get_encoding, (self.name,)
        ranks, tokens = self._mergeable_ranks, self._special_tokens
        make = partial(type(self), pat_str=self._pat_str, mergeable_ranks=ranks)
        return partial(make, special_tokens=tokens), (self.name,)

    @cached_property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        # Not `token_to_id`: no text gives the empty token of Whisper's file, but it has an id.
        vocab = self.tokenizer.spec.vocab.items()
        return {token: id_ for id_, token in vocab if id_ not in self._special_ids}

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of `text` as plain text."""
        return _encode_any(self.tokenizer.encode_ordinary, text)

    def encode(
        self, text: str, *, allowed_special: Allowed = _NONE, disallowed_special: Disallowed = "all"
    ) -> list[int]:
        """The ids of `text`. Special tokens of `allowed_special` are recognised, those of
        `disallowed_special` (by default all others) are an error, any others are plain text. Raises
        SpecialTokenForbiddenError (a ValueError): the text contains a disallowed token."""
        allowed = self._policy([text], allowed_special, disallowed_special)
        return _encode_any(partial(self.tokenizer.encode, allowed_special=allowed), text)

    def encode_to_numpy(
        self, text: str, *, allowed_special: Allowed = _NONE, disallowed_special: Disallowed = "all"
    ) -> NDArray[np.uint32]:
        """As `encode`, as an array of shape (n_tokens,), uint32."""
        allowed = self._policy([text], allowed_special, disallowed_special)
        return _encode_any(partial(self.tokenizer.encode_to_numpy, allowed_special=allowed), text)

    def encode_ordinary_batch(self, text: list[str], *, num_threads: int = 8) -> list[list[int]]:
        """As `encode_ordinary`, of each text."""
        return self._encode_batch(list(text), "none", num_threads)

    def encode_batch(
        self,
        text: list[str],
        *,
        num_threads: int = 8,
        allowed_special: Allowed = _NONE,
        disallowed_special: Disallowed = "all",
    ) -> list[list[int]]:
        """As `encode`, of each text."""
        texts = list(text)  # of any iterable, as tiktoken
        allowed = self._policy(texts, allowed_special, disallowed_special)
        return self._encode_batch(texts, allowed, num_threads)

    def _encode_batch(
        self, texts: Sequence[str], allowed: Literal["all", "none"] | frozenset[str], threads: int
    ) -> list[list[int]]:
        # The Python engine would start processes.
        threads = threads if self.tokenizer.engine.has_threads else 1
        encode = self.tokenizer.encode_batch
        try:
            return encode(texts, num_threads=threads, allowed_special=allowed)
        except UnicodeEncodeError:
            texts = [_without_surrogates(text) for text in texts]
            return encode(texts, num_threads=threads, allowed_special=allowed)

    def encode_with_unstable(
        self, text: str, *, allowed_special: Allowed = _NONE, disallowed_special: Disallowed = "all"
    ) -> tuple[list[int], list[list[int]]]:
        """The ids that stay the same for every continuation of `text`, and ways to go on from
        there: lists of ids whose bytes begin with the rest of `text`. As complete as tiktoken's.
        Raises SpecialTokenForbiddenError (a ValueError): as `encode`."""
        allowed = self._policy([text], allowed_special, disallowed_special)
        ids = _encode_any(partial(self.tokenizer.encode, allowed_special=allowed), text)
        n_stable = len(ids) - self._n_unstable(_without_surrogates(text), ids, allowed)
        rest = self.decode_bytes(ids[n_stable:])
        if not rest:
            return ids, []
        ranks = self._mergeable_ranks
        found: set[tuple[int, ...]] = {(ranks[token],) for token in self._tokens_from(rest)}
        # A token that straddles the end of the text may begin anywhere in the rest.
        for encoded in self._encode_pieces(
            rest[:cut] + token
            for cut in range(1, len(rest))
            for token in self._tokens_from(rest[cut:])
        ):
            ends = accumulate(len(self.decode_single_token_bytes(id_)) for id_ in encoded)
            n_short = sum(1 for _ in takewhile(lambda end: end < len(rest), ends))
            found.add(tuple(encoded[: n_short + 1]))
        # More text may split white space before it off: "\n\n" becomes "\n" and "\n0".
        last = rest.decode(errors="ignore")[-1:]
        before = rest.removesuffix(last.encode())
        if last and last in WHITE_SPACE and 0 < len(before) < len(rest):
            found.add((*self._merge(before), *self._merge(last.encode())))
        return ids[:n_stable], [list(completion) for completion in found]

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of one token, special or not; KeyError if there is none."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        if not isinstance(token, bytes):
            raise TypeError(f"a token is a str or bytes, not {type(token).__name__}")
        if token in self._mergeable_ranks:
            return self._mergeable_ranks[token]
        try:
            return self._special_tokens[token.decode()]
        except (KeyError, UnicodeDecodeError):
            raise KeyError(token) from None

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes of the ids, joined; KeyError for an unknown id."""
        try:
            return self.tokenizer.decode_bytes(tokens)
        except UnknownTokenIdError as error:
            raise KeyError(str(error)) from None

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """The text of the ids; KeyError for an unknown id."""
        try:
            return self.tokenizer.decode(tokens, errors)
        except UnknownTokenIdError as error:
            raise KeyError(str(error)) from None

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id, special or not; KeyError for an unknown id."""
        return self.tokenizer.spec.vocab[operator.index(token)]

    def decode_tokens_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each id; KeyError for an unknown one."""
        return [self.decode_single_token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Sequence[int]) -> tuple[str, list[int]]:
        """The text, and for each id the index of the first character with a byte of it. Raises
        UnicodeDecodeError: the bytes are not UTF-8."""
        parts = self.decode_tokens_bytes(tokens)
        n_starts = [sum(not 0x80 <= byte < 0xC0 for byte in part) for part in parts]
        before = accumulate(n_starts, initial=0)
        # A token that begins inside a character belongs to the character before.
        offsets = [
            max(0, n - (0x80 <= part[0] < 0xC0)) if part else n
            for n, part in zip(before, parts, strict=False)
        ]
        return b"".join(parts).decode(), offsets

    def decode_batch(
        self, batch: Sequence[Sequence[int]], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """The text of each list of ids. `num_threads` is unused: decoding is that fast."""
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(
        self, batch: Sequence[Sequence[int]], *, num_threads: int = 8
    ) -> list[bytes]:
        """The bytes of each list of ids. `num_threads` is unused, as in `decode_batch`."""
        return [self.decode_bytes(tokens) for tokens in batch]

    def token_byte_values(self) -> list[bytes]:
        """The bytes of all tokens that are not special, sorted; a new list."""
        return list(self._sorted_tokens)

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`; KeyError if there is none."""
        return self._special_tokens["<|endoftext|>"]

    @cached_property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._special)

    def is_special_token(self, token: int) -> bool:
        """Whether the id is that of a special token."""
        return operator.index(token) in self._special_ids

    @property
    def n_vocab(self) -> int:
        """`max_token_value + 1`."""
        return self.max_token_value + 1

    def _policy(
        self, texts: Iterable[str], allowed: Allowed, disallowed: Disallowed
    ) -> Literal["all", "none"] | frozenset[str]:
        """The special tokens to recognise; raise SpecialTokenForbiddenError for a text with one to
        refuse. Unknown names are ignored."""
        chosen = self._special if allowed == "all" else self._special.intersection(allowed)
        forbidden = self._special - chosen if disallowed == "all" else frozenset(disallowed or ())
        if "" in forbidden:
            raise ValueError("disallowed_special holds an empty string, which every text has")
        for text in texts:
            try:
                forbid(text, forbidden)
            except SpecialTokenForbiddenError as error:
                raise SpecialTokenForbiddenError(
                    error.token, as_text="pass disallowed_special=()"
                ) from None
            except (AttributeError, TypeError):
                require_text(text)
                raise
        return "all" if allowed == "all" else chosen or "none"

    @cached_property
    def _sorted_tokens(self) -> list[bytes]:
        return sorted(self._mergeable_ranks)

    def _tokens_from(self, prefix: bytes) -> Iterator[bytes]:
        """The tokens that begin with `prefix`, sorted."""
        start = bisect_left(self._sorted_tokens, prefix)
        following = islice(self._sorted_tokens, start, None)
        return takewhile(lambda token: token.startswith(prefix), following)

    def _n_unstable(
        self, text: str, ids: list[int], allowed: Literal["all", "none"] | frozenset[str]
    ) -> int:
        """How many of the last ids more text could change: those of the last pre-token, and all of
        white space before it if it begins with white space."""
        if not ids:
            return 0
        spec = self.tokenizer.spec
        recognised, _ = resolve_policy(spec.added_tokens, allowed, ())
        *_, (plain, special) = matcher_of_strings(recognised).split(text)
        pieces = split(plain, spec.pattern) if special is None else []
        n_ids = len(self.tokenizer.engine.encode_pre_tokens(pieces[-1:]))
        if n_ids and self._is_space(ids[-n_ids]):
            while n_ids < len(ids) and self._is_space(ids[-n_ids - 1]):
                n_ids += 1
        return n_ids

    def _is_space(self, id_: int) -> bool:
        return id_ not in self._special_ids and not self.tokenizer.spec.vocab[id_].strip(_SPACES)

    def _encode_pieces(self, pieces: Iterable[bytes]) -> list[list[int]]:
        """The ids of each piece: split if it is text, else merged as a whole."""
        listed = list(pieces)
        texts = {index: piece.decode() for index, piece in enumerate(listed) if is_utf8(piece)}
        encoded = dict(zip(texts, self.encode_ordinary_batch(list(texts.values())), strict=True))
        return [
            encoded[index] if index in encoded else self._merge(piece)
            for index, piece in enumerate(listed)
        ]

    def _merge(self, piece: bytes) -> list[int]:
        """The ids of bytes that need not be text, as one pre-token: by definition, in quadratic
        time."""
        ranks = self._mergeable_ranks
        if piece in ranks:
            return [ranks[piece]]
        parts = [bytes([byte]) for byte in piece]
        while len(parts) > 1:
            joined = [ranks.get(left + right) for left, right in pairwise(parts)]
            rank, at = min(
                ((rank, at) for at, rank in enumerate(joined) if rank is not None),
                default=(None, 0),
            )
            if rank is None:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [ranks[part] for part in parts]

    def _encode_single_piece(self, text_or_bytes: str | bytes) -> list[int]:
        piece = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        return self._merge(piece)

    def _encode_bytes(self, text: bytes) -> list[int]:
        try:
            return self.encode_ordinary(text.decode())
        except UnicodeDecodeError as error:
            n_valid = error.start
        valid = text[:n_valid].decode()
        ids = self.encode_ordinary(valid)
        n_stable = len(ids) - self._n_unstable(valid, ids, "none")
        return ids[:n_stable] + self._merge(self.decode_bytes(ids[n_stable:]) + text[n_valid:])


def _encode_any(encode: Callable[[str], _Ids], text: str) -> _Ids:
    """The ids of a text that may have surrogates."""
    try:
        return encode(text)
    except UnicodeEncodeError:
        return encode(_without_surrogates(text))


def _without_surrogates(text: str) -> str:
    """Pairs of surrogates become their character, others U+FFFD, as in tiktoken."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def get_encoding(encoding_name: str) -> Encoding:
    """The encoding of this name, always the same object.

    Raises:
        ValueError: there is none.
        PresetError: its file is not on this machine; says how to fetch it.
    """
    if not isinstance(encoding_name, str) or encoding_name not in PRESETS:
        raise ValueError(
            f"there is no encoding {encoding_name!r:.60}; there are {', '.join(PRESETS)}"
        )
    return Encoding._of_preset(encoding_name)


def list_encoding_names() -> list[str]:
    """The names that `get_encoding` knows; their files may be missing on this machine."""
    return list(PRESETS)


def encoding_name_for_model(model_name: str) -> str:
    """The name of the encoding that a model of OpenAI uses; KeyError for an unknown model."""
    if (encoding := preset_of_model(model_name)) is not None:
        return encoding
    raise KeyError(
        f"no encoding is known for the model {model_name!r:.60}; name the encoding with "
        f"get_encoding: {', '.join(PRESETS)}"
    )


def encoding_for_model(model_name: str) -> Encoding:
    """The encoding that a model of OpenAI uses; KeyError for an unknown model."""
    return get_encoding(encoding_name_for_model(model_name))
