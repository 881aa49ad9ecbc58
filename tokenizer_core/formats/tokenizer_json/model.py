"""The `model` of a `tokenizer.json`: its entries, its merges, and the alphabet merging starts from.

A vocabulary of bytes spells them in GPT-2's alphabet. One of characters has texts with U+2581 for a
space, and `<0x00>` to `<0xFF>` for the characters that are no tokens. The compiled module can read
entries and merges without an object for each (a `PackedModel`), in a tenth of the time.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

from tokenizer_core.errors import FormatError, OtherModelError
from tokenizer_core.formats.gpt2_files import byte_to_unicode, check_id, parse_tokens, render_token
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.formats.tokenizer_json.added_tokens import assign_added_ids, check_added_ids
from tokenizer_core.formats.tokenizer_json.fields import check_fields, kind_of
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.spec.alphabet import NEVER_IN_UTF8, Alphabet, MissingBytes
from tokenizer_core.spec.checks import MAX_TOKEN_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokenizer_core.formats.tokenizer_json.fields import Entries
    from tokenizer_core.spec import AddedToken, TokenizerSpec

    Merge = tuple[bytes, bytes]

_BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")
_OTHER_MODELS: Final = MappingProxyType(
    {
        "Unigram": "chooses the likeliest pieces (T5, XLNet, ALBERT)",
        "WordPiece": "takes the longest piece of a word (BERT)",
        "WordLevel": "looks up whole words",
    }
)


class Model(NamedTuple):
    """The fields of a spec that a model has, what is `known`, and its entries as spelt."""

    entries: Entries
    vocab: dict[int, bytes]
    merges: list[Merge]
    known: Mapping[str, object] | None
    ignore_merges: bool
    alphabet: Alphabet


def merges_characters(root: Mapping[str, Any]) -> bool:
    """Whether a file has BPE of characters with byte fallback; False for BPE of bytes. Any other
    model is refused by its kind, before any field of it is read."""
    model = root.get("model")
    if not isinstance(model, dict):
        return False
    knows_bytes = any(_has_byte_level(root.get(part)) for part in ("pre_tokenizer", "decoder"))
    has_fallback = model.get("byte_fallback") is True and _is_vocab(model.get("vocab"))
    by_characters = has_fallback and "<0x00>" in model["vocab"] and not knows_bytes
    kind = model.get("type") or _kind_without_type(model)
    if isinstance(kind, str) and kind in _OTHER_MODELS:
        found = f"{kind}, which {_OTHER_MODELS[kind]}"
    elif kind != "BPE" or knows_bytes or by_characters:
        return by_characters
    else:
        found = "BPE of characters, without the bytes for those that it lacks"
    raise OtherModelError(
        f"tokenizer.json: its model is {found}; byte-level and SentencePiece-style BPE can be "
        f"published and served. In Python and in commands, name the file itself to encode with it"
    )


def _kind_without_type(model: Mapping[str, object]) -> str:
    """The kind of a model in files from before `type`."""
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    if "max_input_chars_per_word" in model:
        return "WordPiece"
    return "BPE" if "merges" in model else "WordLevel"


def _has_byte_level(value: object) -> bool:
    """Whether a pre-tokenizer or decoder is a ByteLevel, or a Sequence with one."""
    steps = (value.get("pretokenizers") or value.get("decoders")) if isinstance(value, dict) else ()
    return "ByteLevel" in map(kind_of, [value, *(steps if isinstance(steps, list) else ())])


def _is_vocab(value: object) -> TypeGuard[Entries]:
    """Whether a value may be the `vocab` of a model: an object, or entries that are packed."""
    return isinstance(value, dict) or hasattr(value, "entries")


def parse_model(
    value: object,
    added: Sequence[AddedToken],
    cuts: tuple[frozenset[int], bool] | None,
    *,
    by_characters: bool,
) -> Model:
    """Parse the model of a file with these added tokens, whose pre-tokenizer has these `cuts`.
    Raises FormatError: a field that cannot be read exactly (named), or an added token has another
    id than `tokenizers` would give it."""
    if isinstance(value, dict) and value.get("dropout"):
        raise FormatError(
            f"tokenizer.json: model.dropout is {value['dropout']!r:.20}, with which `tokenizers` "
            f"leaves merges out at random; set it to null for the ids without"
        )
    fields = check_fields(
        value,
        "model",
        {
            "type": ("BPE",),
            "dropout": (None, 0.0, 0),
            "continuing_subword_prefix": (None, ""),
            "fuse_unk": (None, False, True),
            "byte_fallback": (None, False, True),
            "ignore_merges": (None, False, True),
        },
        # `unk_token` has no effect where the vocabulary has all bytes; see `_parse_missing`.
        ("unk_token", "end_of_word_suffix", "vocab", "merges"),
        ("vocab", "merges"),
    )
    ignore_merges = fields.get("ignore_merges") is True
    if by_characters:
        _check_characters(fields)
    contents = [token.content for token in added]
    entries = _check_entries(fields["vocab"], () if by_characters else contents)
    check_added_ids(added, entries)
    vocab, idle, merges, merge_ids = _parse_entries(
        entries, fields["merges"], contents, by_characters=by_characters
    )
    if by_characters:
        alphabet = Alphabet(_parse_byte_ids(entries, contents))
    else:
        missing = _parse_missing(fields, entries)
        suffix = _parse_word_suffix(fields, entries, missing)
        if cuts is not None:
            missing = _check_cuts(cuts, fields, merges, missing)
        alphabet = Alphabet(missing=missing, word_suffix=suffix, idle_ids=idle)
    known = None if merge_ids is None else {"merge_ids": merge_ids}
    return Model(entries, vocab, merges, known, ignore_merges, alphabet)


def _check_characters(fields: Mapping[str, object]) -> None:
    """Check settings that a vocabulary of bytes may have and this one may not."""
    if fields.get("ignore_merges") is True:
        raise FormatError(
            "tokenizer.json: model.ignore_merges is True; in a vocabulary of characters only False "
            "can be read exactly"
        )
    suffix = {"end_of_word_suffix": fields.get("end_of_word_suffix")}
    check_fields(suffix, "model", {"end_of_word_suffix": (None, "")})


def _check_entries(value: object, contents: Collection[str]) -> Entries:
    """The entries as in the file; checks each id, and that each id occurs only once.

    An added token with one of these `contents` may have two spellings: its content, by which
    `tokenizers` finds its id, and its bytes in the byte alphabet.
    """
    if not _is_vocab(value):
        raise FormatError("tokenizer.json: model.vocab is no object")
    if not isinstance(value, dict):
        return value  # checked when it was read
    ids = value.values()
    are_ids = set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MAX_TOKEN_ID
    if are_ids and len(set(ids)) == len(ids):
        return value  # a million entries one by one would take a second
    known = frozenset(contents)
    owners: dict[int, str] = {}
    for text, id_ in value.items():
        check_id(id_, text)
        owner = owners.setdefault(id_, text)
        if owner is not text and not (
            _spell_the_same(owner, text) and (owner in known or text in known)
        ):
            raise FormatError(
                f"tokenizer.json: id {id_} stands for two tokens, {owner!r:.60} and {text!r:.60}"
            )
    return value


def _spell_the_same(one: str, other: str) -> bool:
    """Whether one is in the byte alphabet what the other is as plain text."""
    pairs = ((one, other), (other, one))
    return any(render_token(text.encode(errors="replace")) == spelt for text, spelt in pairs)


def _parse_entries(
    entries: Entries, merges: object, contents: Sequence[str], *, by_characters: bool
) -> tuple[dict[int, bytes], tuple[int, ...], list[Merge], array[int] | None]:
    """id -> bytes of the entries, the idle ids among them, the merges, and, if known, their ids as
    in `TokenizerSpec.with_added_tokens`; `contents`: of the added tokens."""
    if not isinstance(entries, dict):
        built = entries.build(list(contents), by_characters=by_characters)
        if built is not None:
            return built[0], (), built[1], array("I", built[2])
        sides = iter(entries.sides())
        entries, merges = entries.entries(), list(map(list, zip(sides, sides, strict=True)))
    if not isinstance(merges, list):
        raise FormatError("tokenizer.json: model.merges is no list")
    if by_characters:
        return _bytes_of_characters(entries, contents), (), _merges_of_characters(merges), None
    tokens = dict(zip(entries, parse_tokens(entries), strict=True))
    vocab, idle = _bytes_of(entries, tokens, contents)
    return vocab, idle, _parse_merges(merges, tokens, leaves_out_idle=bool(idle)), None


def _bytes_of(
    entries: Mapping[str, int], tokens: Mapping[str, bytes | None], contents: Sequence[str]
) -> tuple[dict[int, bytes], tuple[int, ...]]:
    """id -> bytes of the entries, and the ids of the idle ones; `tokens` has each entry decoded
    from the byte alphabet.

    Entries of added tokens are plain text, the others use the alphabet; an ambiguous entry is
    refused. An entry with a character outside the alphabet is idle: no text and no merge gives it,
    and it decodes to itself.
    """
    vocab = dict(zip(entries.values(), map(tokens.__getitem__, entries), strict=True))
    for text in filter(entries.__contains__, contents):
        token, plain = tokens[text], text.encode()
        if not _is_plain(text, token):
            raise FormatError(
                f"tokenizer.json: the added token {text!r:.60} is spelt like the bytes "
                f"{token!r:.60} in model.vocab, which gives one id two meanings"
            )
        vocab[entries[text]] = plain
    idle = {id_: text for text, id_ in entries.items() if vocab[id_] is None}
    for id_, text in idle.items():
        vocab[id_] = text.encode()
    return cast("dict[int, bytes]", vocab), tuple(sorted(idle))


def _is_plain(text: str, token: bytes | None) -> bool:
    """Whether `text` means itself in the byte alphabet, where it is `token`, or is not of it."""
    return token is None or token == text.encode()


def _parse_merges(
    listed: list[Any], tokens: Mapping[str, bytes | None], *, leaves_out_idle: bool
) -> list[Merge]:
    """The merges, written as "a b" or as ["a", "b"]; `tokens` has most of their sides. Those of
    idle entries can be left out: no text gives these."""
    texts = _sides_of(listed)
    if leaves_out_idle:
        pairs = list(zip(texts[::2], texts[1::2], strict=True))
        kept = [index for index, pair in enumerate(pairs) if not _is_idle(pair, tokens)]
        texts = list(chain.from_iterable(map(pairs.__getitem__, kept)))
        listed = list(map(listed.__getitem__, kept))
    try:
        parsed = list(map(tokens.__getitem__, texts))
    except KeyError:
        # The spec refuses sides that are in the alphabet but not in the vocabulary.
        distinct = dict.fromkeys(texts)
        known = dict(zip(distinct, parse_tokens(distinct), strict=True))
        parsed = list(map(known.__getitem__, texts))
    sides = iter(parsed)
    merges = list(zip(sides, sides, strict=True))
    if not all(parsed):
        index = next(index for index, sides in enumerate(merges) if not all(sides))
        raise _merge_error(index, listed[index])
    return cast("list[Merge]", merges)


def _is_idle(pair: tuple[str, str], tokens: Mapping[str, bytes | None]) -> bool:
    known = (*pair, "".join(pair))
    return all(text in tokens for text in known) and None in map(tokens.__getitem__, known)


def _sides_of(merges: list[Any]) -> list[str]:
    """Left and right side of each merge, in one list."""
    are_texts = set(map(type, merges)) == {str}
    if are_texts and set(map(str.count, merges, repeat(" "))) == {1}:
        # Splitting each of hundreds of thousands of texts separately takes three times as long.
        return " ".join(merges).split(" ")
    pairs = [entry.split(" ") if isinstance(entry, str) else entry for entry in merges]
    for index, pair in enumerate(pairs) if not _are_pairs(pairs) else ():
        if not _are_pairs([pair]):
            raise _merge_error(index, merges[index])
    return list(chain.from_iterable(pairs))


def _are_pairs(values: list[Any]) -> bool:
    """Whether all values are lists of two strings (true for an empty list)."""
    if not set(map(type, values)) <= {list} or not set(map(len, values)) <= {2}:
        return False
    return set(map(type, chain.from_iterable(values))) <= {str}


def _merge_error(index: int, merge: object) -> FormatError:
    return FormatError(
        f"tokenizer.json: model.merges[{index}] is {merge!r:.80}, not two tokens of the byte "
        f"alphabet"
    )


def _bytes_of_characters(entries: Mapping[str, int], contents: Collection[str]) -> dict[int, bytes]:
    """id -> bytes of the entries of a vocabulary of characters."""
    vocab: dict[int, bytes] = {}
    plain = frozenset(contents)
    for text, id_ in entries.items():
        if text not in plain and (byte := _BYTE.fullmatch(text)):
            vocab[id_] = bytes([int(byte[1], 16)])
        elif text not in plain and (" " in text or not text):
            raise FormatError(
                f"tokenizer.json: the entry {text!r:.60} of model.vocab holds a space or nothing; "
                f"a vocabulary of characters writes a space as U+2581"
            )
        else:
            vocab[id_] = text.replace(METASPACE_CHARACTER, " ").encode()
    return vocab


def _merges_of_characters(listed: list[Any]) -> list[Merge]:
    texts = _sides_of(listed)
    for text in dict.fromkeys(texts):
        if not text or " " in text or _BYTE.fullmatch(text):
            raise FormatError(
                f"tokenizer.json: a merge has the side {text!r:.60}, which is no text of characters"
            )
    sides = (text.replace(METASPACE_CHARACTER, " ").encode() for text in texts)
    return list(zip(sides, sides, strict=True))


def _parse_byte_ids(entries: Entries, contents: Collection[str]) -> tuple[int, ...]:
    """The ids of the 256 bytes, -1 for one that no text needs. `contents`: of the added tokens.
    Raises FormatError: a byte has no token, or a token means two things."""
    plain = frozenset(contents)
    for content in sorted(plain):
        if len(content) == 1 and content not in entries:
            raise FormatError(
                f"tokenizer.json: model.vocab lacks the added token {content!r:.60}; put that "
                f"character there, from which merging starts"
            )
        # It would decode like the token with U+2581, and only one of them can be what merges make.
        if " " in content and content.replace(" ", METASPACE_CHARACTER) in entries:
            raise FormatError(
                f"tokenizer.json: the added token {content!r:.60} and an entry of model.vocab "
                f"differ in U+2581 and a space alone, which cannot be told apart exactly"
            )
    if METASPACE_CHARACTER not in entries:
        raise FormatError(
            "tokenizer.json: model.vocab has no U+2581, as which a vocabulary of characters writes "
            "a space"
        )
    names = [f"<0x{value:02X}>" for value in range(256)]
    byte_ids = [entries[name] if name in entries and name not in plain else -1 for name in names]
    # No fallback gives the byte of a character that is a token: Gemma has a tab and no <0x09>.
    needless = {value for value in range(0x80) if chr(value) in entries} | NEVER_IN_UTF8 | {0x20}
    missing = [value for value in range(256) if byte_ids[value] < 0 and value not in needless]
    if missing:
        raise FormatError(
            f"tokenizer.json: model.vocab has no token <0x{missing[0]:02X}>, so that characters "
            f"would become the unknown token; add it"
        )
    return tuple(byte_ids)


def _parse_missing(fields: Mapping[str, object], entries: Entries) -> MissingBytes | None:
    """The bytes of UTF-8 that the model lacks. `tokenizers` leaves them out before it merges, or
    gives `unk_token` for each, or with `fuse_unk` for several in a row."""
    found = {byte for byte, text in byte_to_unicode().items() if text in entries}
    values = tuple(sorted(set(range(256)) - NEVER_IN_UTF8 - found))
    if not values or not found:
        return None  # the spec refuses a vocabulary without any
    unk_token, unk_id = fields.get("unk_token"), None
    if fields.get("byte_fallback") is True:
        raise FormatError(
            f"tokenizer.json: model.byte_fallback is true, and model.vocab lacks the byte "
            f"0x{values[0]:02x}; only false can be read exactly in a vocabulary of bytes"
        )
    if unk_token is not None:
        if not isinstance(unk_token, str) or unk_token not in entries:
            raise FormatError(
                f"tokenizer.json: model.unk_token is {unk_token!r:.60}, which model.vocab lacks, "
                f"as it does the byte 0x{values[0]:02x}: tokenizers cannot encode such text either"
            )
        unk_id = entries[unk_token]
    return MissingBytes(values, unk_id, unk_id is not None and fields.get("fuse_unk") is True)


def _parse_word_suffix(
    fields: Mapping[str, object], entries: Entries, missing: MissingBytes | None
) -> bytes:
    """The suffix of the last token of each pre-token (CLIP)."""
    suffix = fields.get("end_of_word_suffix") or ""
    what = f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}"
    if not isinstance(suffix, str) or not re.fullmatch("[!-~]*", suffix):
        raise FormatError(f"{what}; only visible ASCII can be read exactly")
    if not suffix:
        return b""
    if missing:
        raise FormatError(
            f"{what}, and model.vocab lacks the byte 0x{missing.values[0]:02x}; a suffix can be "
            f"read exactly only in a vocabulary of all bytes"
        )
    if fields.get("ignore_merges") is True:
        raise FormatError(
            f"{what}, and model.ignore_merges is true; with a suffix, only false can be read "
            f"exactly"
        )
    lacking = [
        byte
        for byte, text in byte_to_unicode().items()
        if text + suffix not in entries and byte not in NEVER_IN_UTF8
    ]
    if lacking:
        raise FormatError(
            f"{what}, and model.vocab lacks {len(lacking)} of the bytes of UTF-8 at the end of a "
            f"word (first: 0x{lacking[0]:02x}), so that text could give the unknown token"
        )
    return suffix.encode()


def _check_cuts(
    cuts: tuple[frozenset[int], bool],
    fields: Mapping[str, object],
    merges: Sequence[Merge],
    missing: MissingBytes | None,
) -> MissingBytes | None:
    """Refuse steps after a ByteLevel that cut where a merge joins; returns `missing` with `ends`.

    Where no merge joins a token that ends with the byte before a cut to one that begins with the
    byte after it, both sides merge alike with and without the cut, which is therefore left out. Two
    digits with a byte between them that is left out are cut apart, though merges may join them.
    """
    digits, isolates_each = cuts
    lacks_digits = missing is not None and not digits.isdisjoint(missing.values)
    if lacks_digits or fields.get("ignore_merges") is True or fields.get("end_of_word_suffix"):
        raise FormatError(
            "tokenizer.json: pre_tokenizer has Digits after a ByteLevel, which can be read exactly "
            "only with all digits in model.vocab, without ignore_merges and end_of_word_suffix"
        )
    for left, right in merges:
        before, after = left[-1] in digits, right[0] in digits
        if before != after or (isolates_each and before):
            raise FormatError(
                f"tokenizer.json: pre_tokenizer has Digits after a ByteLevel, where it splits "
                f"between the bytes of a character, and the merge of {left!r:.40} and "
                f"{right!r:.40} joins across such a place, which cannot be read exactly; encode "
                f"with Hugging Face's tokenizers"
            )
    return missing and replace(missing, ends=tuple(sorted(digits)))


def render_model(spec: TokenizerSpec) -> dict[str, object]:
    """The `model` of a spec. Ranks are written as their equivalent merges (see `tiktoken_file`)
    with `ignore_merges`."""
    by_characters, missing = spec.alphabet.has_characters, spec.alphabet.missing
    vocab = _render_characters(spec) if by_characters else _render_bytes(spec)
    merges: Sequence[Merge] = spec.merges
    if spec.kind == "ranks":
        merges = recover_reachable_merges(spec.token_to_id)[0]
    render = render_piece if by_characters else render_token
    unk_id = spec.alphabet.unk_id
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": next((text for text, id_ in vocab.items() if id_ == unk_id), None),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": spec.alphabet.word_suffix.decode() or None,
        "fuse_unk": by_characters or (missing is not None and missing.is_fused),
        "byte_fallback": by_characters,
        "ignore_merges": spec.ignore_merges or spec.kind == "ranks",
        "vocab": vocab,
        "merges": [[render(left), render(right)] for left, right in merges],
    }


def _render_bytes(spec: TokenizerSpec) -> dict[str, int]:
    """The entries by rising id, including the added tokens that the source had there, and all of
    them if their ids require it."""
    contents = {token.id: token.content for token in spec.added_tokens}
    learned = {id_: token for token, id_ in spec.token_to_id.items()}
    unk_id = spec.alphabet.unk_id
    texts: dict[str, int] = {}
    idle = {id_: spec.vocab[id_].decode() for id_ in spec.alphabet.idle_ids}
    for id_, token in sorted(spec.vocab.items()):
        is_added = id_ in contents and id_ not in learned
        if is_added and id_ != unk_id:
            continue
        text = contents[id_] if is_added else idle.get(id_) or render_token(token)
        if text in texts:
            raise FormatError(
                f"ids {texts[text]} and {id_} stand for the same bytes {token!r:.60}, which "
                f"tokenizer.json cannot hold"
            )
        texts[text] = id_
    names = [token.content for token in spec.added_tokens]
    ids = [token.id for token in spec.added_tokens]
    in_model = frozenset(spec.model_added_ids)
    recorded = {token.content: token.id for token in spec.added_tokens if token.id in in_model}
    is_readable = all(map(_is_plain, recorded, parse_tokens(recorded)))
    if is_readable and assign_added_ids(recorded | texts, names) == ids:
        texts = recorded | texts
    elif assign_added_ids(texts, names) != ids:
        for added in spec.added_tokens:
            if texts.setdefault(added.content, added.id) != added.id:
                raise FormatError(
                    f"the added token {added.content!r:.60} (id {added.id}) is spelt like the "
                    f"token of id {texts[added.content]}; tokenizers would mix them up"
                )
    # Refuse to write a file that cannot be read back.
    _bytes_of(texts, dict(zip(texts, parse_tokens(texts), strict=True)), names)
    for byte in spec.alphabet.missing.values if spec.alphabet.missing else ():
        if render_token(bytes([byte])) in texts:
            raise FormatError(
                f"the added token of the byte 0x{byte:02x} would be the byte itself to tokenizers, "
                f"which this vocabulary lacks; publish the tokenizer as an artifact"
            )
    return dict(sorted(texts.items(), key=lambda item: item[1]))


def _render_characters(spec: TokenizerSpec) -> dict[str, int]:
    """The entries of a vocabulary of characters, by rising id."""
    known = {token.id: token.content for token in spec.added_tokens} | render_byte_tokens(spec)
    texts: dict[str, int] = {}
    for id_, token in sorted(spec.vocab.items()):
        text = known.get(id_) or render_piece(token)
        if texts.setdefault(text, id_) != id_:
            raise FormatError(
                f"ids {texts[text]} and {id_} stand for the same characters {token!r:.60}, which "
                f"tokenizer.json cannot hold"
            )
    return texts


def render_piece(token: bytes) -> str:
    """The spelling of a token of characters in a file."""
    return token.decode().replace(" ", METASPACE_CHARACTER)


def render_byte_tokens(spec: TokenizerSpec) -> dict[int, str]:
    """The spelling of the tokens of bytes, by id."""
    return {id_: f"<0x{byte:02X}>" for byte, id_ in enumerate(spec.alphabet.byte_ids) if id_ >= 0}
