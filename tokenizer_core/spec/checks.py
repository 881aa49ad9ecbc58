"""What a spec must fulfil so that an engine can run it."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.spec.added_tokens import list_added_tokens
from tokenizer_core.spec.alphabet import NEVER_IN_UTF8, is_utf8, pattern_of_characters
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from tokenizer_core.spec import Merge, TokenizerSpec

MAX_TOKEN_ID: Final = (1 << 20) - 1
"""Ids stay below 2^20, five times the largest public vocabulary, so that a table indexed by id
can always be allocated."""

MAX_TOKEN_BYTES: Final = 1 << 20
"""Longer tokens are refused: preparing an engine takes seconds for one of 40 MB."""

MAX_IDS_AROUND: Final = 64
"""Most ids that a post-processor puts around each text; those of models have up to two."""

_SOUND_SIDES: Final[tuple[tuple[set[int], set[type]], ...]] = (({2}, {bytes}), (set(), set()))


def gaps_in(ids: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last id of each gap."""
    pairs = pairwise([-1, *sorted(ids)])
    return [(before + 1, id_ - 1) for before, id_ in pairs if id_ > before + 1]


def check_spec(spec: TokenizerSpec) -> None:
    """Raise InvalidSpecError unless an engine can run this spec with its normalizer."""
    _check_vocab(spec)
    if "merge_ids" not in vars(spec):
        _check_sides(spec.merges)
    _check_added_tokens(spec)
    _check_idle(spec)
    _check_missing(spec)
    _check_merges(spec)
    _check_word_suffix(spec)
    _check_byte_ids(spec)
    around = *spec.prefix_ids, *spec.suffix_ids
    if len(around) > MAX_IDS_AROUND:
        raise InvalidSpecError(
            f"the post-processor puts {len(around)} ids around a text, more than {MAX_IDS_AROUND}"
        )
    for id_ in around:
        if id_ not in spec.vocab:
            raise InvalidSpecError(f"the post-processor adds id {id_}, which has no token")


def _check_vocab(spec: TokenizerSpec) -> None:
    vocab = spec.vocab
    for id_, token in () if _is_sound(vocab) else vocab.items():
        if type(id_) is not int or not 0 <= id_ <= MAX_TOKEN_ID:
            raise InvalidSpecError(f"token id {id_!r:.40} is not an integer in 0..{MAX_TOKEN_ID}")
        if type(token) is not bytes:
            raise InvalidSpecError(f"the token of id {id_} must be bytes, not {token!r:.40}")
    # Tokens in their order lie next to each other in memory, those of a set do not.
    if max(map(len, vocab.values()), default=0) > MAX_TOKEN_BYTES:
        id_, token = next(item for item in vocab.items() if len(item[1]) > MAX_TOKEN_BYTES)
        raise InvalidSpecError(
            f"the token of id {id_}, {token[:40]!r}..., has {len(token)} bytes, more than "
            f"{MAX_TOKEN_BYTES}; leave it out"
        )
    may_lack = spec.alphabet.missing.values if spec.alphabet.missing else ()
    missing = [byte for byte in _lacking(set(vocab.values())) if byte not in may_lack]
    if missing:
        raise InvalidSpecError(
            f"the vocabulary has no token for {len(missing)} of the bytes of UTF-8 (first: "
            f"0x{missing[0]:02x}); byte-level BPE needs all of them to encode any text"
        )


def _is_sound(vocab: Mapping[int, bytes]) -> bool:
    types = set(map(type, vocab)), set(map(type, vocab.values()))
    return types == ({int}, {bytes}) and min(vocab) >= 0 and max(vocab) <= MAX_TOKEN_ID


def _lacking(known: Container[bytes], suffix: bytes = b"") -> list[int]:
    """The bytes of UTF-8 that have no token with this suffix."""
    return [b for b in range(256) if bytes([b]) + suffix not in known and b not in NEVER_IN_UTF8]


def _check_added_tokens(spec: TokenizerSpec) -> None:
    seen: set[str] = set()
    special_of: dict[int, bool] = {}
    strips_right = {token.normalized for token in spec.added_tokens if token.rstrip}
    list_added_tokens(spec.added_tokens)
    for token in spec.added_tokens:
        if token.content in seen:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} (id {token.id}) is given twice"
            )
        spelt = spec.spelling(token)
        if spec.vocab.get(token.id) != spelt and token.id not in special_of:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} is not in the vocabulary with id "
                f"{token.id}; Tokenizer.with_special_tokens puts tokens into both"
            )
        if special_of.setdefault(token.id, token.special) != token.special:
            raise InvalidSpecError(
                f"of the tokens with id {token.id}, {token.content!r:.60} alone is "
                f"{'special' if token.special else 'not special'}; make both the same"
            )
        if token.normalized in strips_right and not spelt.decode().strip(WHITE_SPACE):
            raise InvalidSpecError(
                f"the added token {token.content!r:.60} is white space, which a token with the "
                f"flag rstrip includes; remove that flag, or this token"
            )
        seen.add(token.content)


def _check_word_suffix(spec: TokenizerSpec) -> None:
    alphabet, suffix = spec.alphabet, spec.alphabet.word_suffix
    if not suffix:
        return
    is_of_bytes = spec.kind == "merges" and not (alphabet.has_characters or alphabet.missing)
    if not is_of_bytes or spec.ignore_merges or not suffix.isascii():
        raise InvalidSpecError(
            "a vocabulary with a word_suffix has an ASCII suffix, merges of bytes, no "
            "ignore_merges, and no missing bytes"
        )
    # Merging does not start from an added token, which `tokenizers` would do.
    missing = _lacking(spec.token_to_id, suffix)
    if missing:
        raise InvalidSpecError(
            f"the vocabulary has no token for {len(missing)} of the bytes of UTF-8 at the end of a "
            f"word (first: 0x{missing[0]:02x}, with {suffix!r:.40}), so that text could "
            f"give the unknown token; add these tokens"
        )


def _check_byte_ids(spec: TokenizerSpec) -> None:
    byte_ids, vocab = spec.alphabet.byte_ids, spec.vocab
    if spec.normalizer.is_of_characters != bool(byte_ids):
        raise InvalidSpecError(
            f"the normalizer {spec.normalizer.name} belongs to a vocabulary of characters with the "
            f"ids of the 256 bytes, and to no other; there are {len(byte_ids)} ids"
        )
    if not byte_ids:
        if spec.pattern.joins_words:
            raise InvalidSpecError("this split pattern belongs to a vocabulary of characters")
        return
    ids = [id_ for id_ in byte_ids if id_ >= 0]
    are_bytes = all(
        vocab.get(id_) == bytes([byte]) or (id_ < 0 and (byte in NEVER_IN_UTF8 or byte < 0x80))
        for byte, id_ in enumerate(byte_ids[:256])
    )
    if not are_bytes or len(byte_ids) != 256 or len(set(ids)) != len(ids):
        raise InvalidSpecError(
            "byte_ids must be the ids of the bytes 0x00 to 0xff, in order; -1 may stand for bytes "
            "that UTF-8 never has and for those of characters with a token"
        )
    bytes_ = frozenset(ids)
    others = {id_: token for id_, token in vocab.items() if id_ not in bytes_}
    if not is_utf8(b" ".join(others.values())):
        id_ = next(id_ for id_, token in others.items() if not is_utf8(token))
        raise InvalidSpecError(
            f"the token of id {id_}, {others[id_]!r:.60}, is not UTF-8; a vocabulary of characters "
            f"has such tokens only in byte_ids"
        )
    pattern = pattern_of_characters(spec.merges)
    if spec.kind != "merges" or spec.ignore_merges or spec.pattern != pattern:
        raise InvalidSpecError(
            f"a vocabulary of characters has merges, no ignore_merges and the split pattern "
            f"{pattern.name} of its merges"
        )


def _is_ascending(numbers: tuple[int, ...]) -> bool:
    return list(numbers) == sorted(set(numbers))


def _check_idle(spec: TokenizerSpec) -> None:
    idle = spec.alphabet.idle_ids
    if not idle:
        return
    if spec.kind != "merges" or spec.alphabet.has_characters or not _is_ascending(idle):
        raise InvalidSpecError(
            "idle_ids are ascending ids of a vocabulary of bytes with merges, and of no other"
        )
    added = {token.id for token in spec.added_tokens}
    for id_ in idle:
        if not is_utf8(spec.vocab.get(id_, b"\xff")) or id_ in added:
            raise InvalidSpecError(f"the idle id {id_} has no text, or it is an added token")


def _check_missing(spec: TokenizerSpec) -> None:
    missing = spec.alphabet.missing
    if missing is None:
        return
    if spec.kind != "merges" or spec.alphabet.has_characters:
        raise InvalidSpecError("only a vocabulary of bytes with merges may lack bytes of UTF-8")
    values, ends = missing.values, missing.ends
    of_utf8 = set(range(256)) - NEVER_IN_UTF8
    if not values or not _is_ascending(values) or not of_utf8 > set(values):
        raise InvalidSpecError(
            f"the missing bytes must be some of those of UTF-8, ascending, not {values!r:.60}"
        )
    if not _is_ascending(ends) or not set(ends) <= set(range(256)) - set(values):
        raise InvalidSpecError(
            f"the ends must be bytes that are not missing, ascending, not {ends!r:.60}"
        )
    lost = {bytes([byte]) for byte in values}
    never_of_text = {token.id for token in spec.added_tokens}.union(spec.alphabet.idle_ids)
    for id_, token in spec.vocab.items():
        if token in lost and id_ not in never_of_text:
            raise InvalidSpecError(f"the missing byte {token!r} has a token, id {id_}")
    if missing.unk_id is None:
        if missing.is_fused:
            raise InvalidSpecError("is_fused needs an unknown token, whose ids it joins")
        return
    unknown = spec.vocab.get(missing.unk_id)
    if not unknown:
        raise InvalidSpecError(f"the unknown token has id {missing.unk_id!r:.40}, without a token")
    if any(unknown in merge for merge in spec.merges):
        raise InvalidSpecError(
            f"a merge joins the unknown token {unknown!r:.60} with another, which cannot be "
            f"encoded exactly; give the missing bytes another unknown token"
        )


def _check_sides(merges: tuple[Merge, ...]) -> None:
    sides = set(map(len, merges)), set(map(type, chain.from_iterable(merges)))
    for rank, merge in enumerate(merges) if sides not in _SOUND_SIDES else ():
        if len(merge) != 2 or not all(type(part) is bytes for part in merge):
            raise InvalidSpecError(f"merge {rank} must be a pair of bytes, not {merge!r:.60}")


def _check_merges(spec: TokenizerSpec) -> None:
    """Refuse merges of tokens that encoding cannot produce, and merges given twice."""
    if not spec.merges:
        return
    try:
        ids = spec.merge_ids
    except KeyError as error:
        missing: bytes | None = error.args[0]
    else:
        never_made = spec.vocab.keys() - set(spec.token_to_id.values())
        missing = next((spec.vocab[id_] for id_ in never_made.intersection(ids)), None)
    if missing is not None:
        rank, merge = next(
            (rank, merge)
            for rank, merge in enumerate(spec.merges)
            if missing in (*merge, b"".join(merge))
        )
        left, right = merge
        raise InvalidSpecError(
            f"merge {rank} ({left!r:.40}, {right!r:.40}) needs the token {missing!r:.60}, which is "
            f"not in the vocabulary: these merges belong to another vocabulary"
        )
    # Both sides as one number: tuples would take a tenth of the time of loading.
    sides = array("I", bytes(8 * len(spec.merges)))
    sides[::2], sides[1::2] = ids[::3], ids[1::3]
    if len({*memoryview(sides.tobytes()).cast("Q")}) < len(spec.merges):
        twice = next(merge for merge, count in Counter(spec.merges).items() if count > 1)
        rank = spec.merges.index(twice, spec.merges.index(twice) + 1)
        left, right = twice
        raise InvalidSpecError(f"merge {rank} ({left!r:.40}, {right!r:.40}) stands twice")
