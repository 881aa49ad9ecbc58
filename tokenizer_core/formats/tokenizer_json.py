"""Hugging Face `tokenizer.json`: byte-level BPE, read and written exactly.

GPT-2, Llama 3 and Qwen files are byte-level BPE. Other settings of the file (a dropout, another
model, normalizer or post-processor) change ids, so the reader refuses an unknown field by its name
and never skips it.

The rules for ids come from the sources of `tokenizers` 0.23 (`added_vocabulary.rs`,
`models/bpe/model.rs`, `pre_tokenizers/byte_level.rs`). One surprise: `tokenizers` ignores the `id`
of an added token. A token whose content is a model entry gets that entry's id; any other gets the
next id after the model's *number* of entries. The reader refuses a file with other ids. If ids have
gaps (cl100k), the writer also adds the added tokens to the model's vocabulary.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from tokenizer_core.blobs.atomic_files import check_size, read_whole_file, write_whole_file
from tokenizer_core.engines import read_packed_model
from tokenizer_core.errors import (
    FormatError,
    InvalidSpecError,
    TokenizerCoreError,
    UnknownPatternError,
)
from tokenizer_core.formats.batch_settings import parse_batch_settings
from tokenizer_core.formats.gpt2_files import (
    byte_to_unicode,
    check_id,
    check_one_name_an_id,
    parse_tokens,
    render_token,
)
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.formats.tokenizer_json_added_tokens import (
    assign_added_ids,
    check_added_tokens_as_pre_tokens,
    parse_added_tokens,
    render_added_token,
)
from tokenizer_core.formats.tokenizer_json_metaspace import (
    check_metaspace_model,
    is_metaspace,
    parse_byte_ids,
    parse_metaspace_merges,
    parse_metaspace_steps,
    parse_metaspace_vocab,
    refuse_normalized_tokens,
    render_metaspace_steps,
    render_metaspace_vocab,
    render_piece,
)
from tokenizer_core.formats.tokenizer_json_parts import (
    check_byte_level,
    check_fields,
    cuts_between_bytes,
    is_byte_level,
    is_vocab,
    parse_post_processor,
    parse_pre_tokenizer,
    puts_prefix_space,
    render_byte_level,
    render_post_processor,
    render_pre_tokenizer,
    with_digits_between_bytes,
)
from tokenizer_core.normalizers.steps import NormalizerStep, StepKind, check_steps
from tokenizer_core.spec import (
    MAX_TOKEN_ID,
    NEVER_IN_UTF8,
    AddedToken,
    MissingBytes,
    TokenizerSpec,
    missing_part_error,
    pattern_of_characters,
)
from tokenizer_core.strict_json import check_number_of_values, parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import PackedModel
    from tokenizer_core.formats.tokenizer_json_parts import Entries
    from tokenizer_core.spec import Normalizer

    Merge = tuple[bytes, bytes]

MAX_FILE_BYTES: Final = 128 << 20
"""The size cap; o200k with all its splits has about 20 MB."""


_LARGE_BYTES: Final = 1 << 20
"""Of a larger file the first entry or merge at fault is named, without looking for faults of JSON
behind it."""


def load_tokenizer_json(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The spec of a `tokenizer.json`, of kind `merges`.

    Raises:
        FormatError: not JSON, or a field whose effect on ids is not supported (named).
        InvalidSpecError: vocabulary, merges and added tokens do not form a tokenizer.
        OSError: the file cannot be read.
    """
    if Path(path).is_dir():
        raise FormatError(f"{str(path)!r} is a folder; load a model folder with Tokenizer.load")
    return parse_tokenizer_json(read_whole_file(path, max_bytes=MAX_FILE_BYTES))


def parse_tokenizer_json(data: bytes) -> TokenizerSpec:
    """Parse the text of a `tokenizer.json` to a spec; raises as `load_tokenizer_json`."""
    return parse_tokenizer_table(parse_tokenizer_document(data, "tokenizer.json"))


def parse_tokenizer_document(data: bytes, what: str) -> object:
    """The JSON value of a `tokenizer.json`, as `parse_strict_json`.

    If the compiled module can read entries and merges of the model, which takes a tenth of the
    time, both `vocab` and `merges` of the model are a `PackedModel` instead. If one of them is at
    fault, `merges` is the error.
    """
    check_number_of_values(data, what)
    packed = read_packed_model(data)
    if packed is None:
        return parse_strict_json(data, what)
    rest, model = packed
    try:
        table = cast("dict[str, Any]", parse_strict_json(rest, what))
    except FormatError:
        return parse_strict_json(data, what)  # names the position
    table["model"].update(vocab=model, merges=model)
    if (fault := model.fault()) is not None:
        if len(data) < _LARGE_BYTES:
            return parse_strict_json(data, what)
        table["model"]["merges"] = _error_of(*fault, model, by_characters=is_metaspace(table))
        if table["model"]["merges"] is None:
            return parse_strict_json(data, what)
    return table


def _error_of(
    number: int | None, data: bytes, model: PackedModel, *, by_characters: bool
) -> TokenizerCoreError | None:
    """The error for the member of `vocab` or the merge (with its number) that the compiled module
    found at fault; None if only the whole document tells. Reading all of a million takes seconds.
    """
    try:
        document = data if number is not None else b"{%b}" % data
        value: Any = parse_strict_json(document, "tokenizer.json")
    except FormatError as error:
        return error if "surrogate" in str(error) else None
    try:
        if number is None:
            ((text, id_),) = value.items()
            return _error_of_entry(text, id_, model)
        left, right = _sides_of([value])
        if by_characters:
            ((left_token, right_token),) = parse_metaspace_merges([left, right])
        else:
            left_token, right_token = _parse_merges([value], {})[0]
    except FormatError as error:
        is_numbered = "model.merges[0]" in str(error)
        return _merge_error(number or 0, value) if is_numbered else error
    tokens = {left: left_token, right: right_token, left + right: left_token + right_token}
    token = next((token for text, token in tokens.items() if text not in model), None)
    # An added token or the token of a byte may have these bytes.
    if (
        token is None
        or token.decode(errors="replace") in model
        or (by_characters and len(token) == 1)
    ):
        return None
    return missing_part_error(number or 0, (left_token, right_token), token)


def _error_of_entry(text: str, id_: int, model: PackedModel) -> FormatError | None:
    check_id(id_, text)
    if text in model:
        return FormatError(f"tokenizer.json gives the key {text!r:.60} twice")
    owner = model.text_of(id_)
    if owner is None or _spell_the_same(owner, text):
        return None
    return _two_tokens_error(id_, owner, text)


def parse_tokenizer_table(value: object) -> TokenizerSpec:
    """Parse the JSON value of a `tokenizer.json` to a spec; raises as `load_tokenizer_json`."""
    root = check_fields(
        value,
        "tokenizer",
        {"version": ("1.0",)},
        (
            "truncation",
            "padding",
            "added_tokens",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "model",
        ),
        ("pre_tokenizer", "decoder", "model"),
    )
    _refuse_other_models(root)
    batch_settings = parse_batch_settings(root)
    if is_metaspace(root):
        return _parse_metaspace(root, batch_settings)
    normalizer, steps = _parse_normalizer(root.get("normalizer"))
    pattern = parse_pre_tokenizer(root["pre_tokenizer"])
    if puts_prefix_space(root["pre_tokenizer"]):
        if normalizer == "none":
            normalizer = "prefix-space"
        else:
            # They would be searched before `add_prefix_space`; the steps come after.
            refuse_normalized_tokens(
                root.get("added_tokens"),
                "pre_tokenizer.add_prefix_space is True beside a normalizer",
            )
            steps = (*(steps or (NormalizerStep("NFC"),)), *_PREFIX_SPACE)
            normalizer = "steps"
    if root["decoder"] is None:
        raise FormatError(
            "tokenizer.json: decoder is null, so that tokenizers joins tokens by spaces, in the "
            'byte alphabet; for their text write {"type": "ByteLevel"} there, and load the file'
        )
    check_byte_level(root["decoder"], "decoder")
    model = _check_model(root["model"])
    texts = _check_texts(model, root.get("added_tokens"))
    added = parse_added_tokens(root.get("added_tokens", []), texts, normalizer, steps)
    vocab, idle, merges, merge_ids = _parse_entries(texts, model["merges"], added)
    missing = _parse_missing(model, texts)
    word_suffix = _parse_word_suffix(model, texts, missing)
    prefix, suffix = parse_post_processor(root.get("post_processor"))
    missing = _check_cuts_between_bytes(root["pre_tokenizer"], model, merges, missing)
    spec = TokenizerSpec.from_merges(
        vocab,
        merges,
        added,
        pattern=pattern,
        ignore_merges=model.get("ignore_merges") is True,
        normalizer=normalizer,
        prefix_ids=prefix,
        suffix_ids=suffix,
        missing=missing,
        batch_settings=batch_settings,
        normalizer_steps=steps,
        word_suffix=word_suffix,
        idle_ids=idle,
        merge_ids=merge_ids,
    )
    if spec.ignore_merges:
        check_added_tokens_as_pre_tokens(spec, texts)
    return spec


_PREFIX_SPACE: Final = (
    NormalizerStep("Prepend", content=" "),
    NormalizerStep("Replace", r"\A  ", is_regex=True, content=" "),
)
"""`add_prefix_space` after the steps of a normalizer: a text that has a space there keeps one."""


def _parse_entries(
    texts: Entries, merges: object, added: Sequence[AddedToken]
) -> tuple[dict[int, bytes], tuple[int, ...], list[Merge], NDArray[np.uint32] | None]:
    """id -> bytes of the model's entries, the idle ids among them, the merges, and, if known, their
    ids as in `TokenizerSpec.from_merges`."""
    if not isinstance(texts, dict):
        built = texts.build([token.content for token in added])
        if built is not None:
            return built[0], (), built[1], built[2].reshape(-1, 3)
        texts, merges = _unpack(texts)
    tokens = dict(zip(texts, parse_tokens(texts), strict=True))
    vocab, idle = _bytes_of(texts, tokens, added)
    return vocab, idle, _parse_merges(merges, tokens, idle=bool(idle)), None


def _unpack(packed: PackedModel) -> tuple[dict[str, int], list[list[str]]]:
    """Entries and merges of a model as a file has them."""
    sides = iter(packed.sides())
    return packed.entries(), list(map(list, zip(sides, sides, strict=True)))


def _parse_word_suffix(
    model: Mapping[str, object], texts: Entries, missing: MissingBytes | None
) -> bytes:
    """The suffix of the last token of each pre-token (CLIP)."""
    suffix = model.get("end_of_word_suffix") or ""
    if not isinstance(suffix, str) or not re.fullmatch("[!-~]*", suffix):
        raise FormatError(
            f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}; only visible ASCII can "
            f"be read exactly"
        )
    if not suffix:
        return b""
    if missing:
        raise FormatError(
            f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}, and model.vocab lacks "
            f"the byte 0x{missing.values[0]:02x}; a suffix can be read exactly only in a "
            f"vocabulary of all bytes"
        )
    if model.get("ignore_merges") is True:
        raise FormatError(
            f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}, and model.ignore_merges "
            f"is true; with a suffix, only false can be read exactly"
        )
    lacking = [
        byte
        for byte, text in byte_to_unicode().items()
        if text + suffix not in texts and byte not in NEVER_IN_UTF8
    ]
    if lacking:
        raise FormatError(
            f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}, and model.vocab lacks "
            f"{len(lacking)} of the bytes of UTF-8 at the end of a word (first: "
            f"0x{lacking[0]:02x}), so that text could give the unknown token"
        )
    return suffix.encode()


def _parse_metaspace(root: Mapping[str, Any], batch_settings: Mapping[str, Any]) -> TokenizerSpec:
    """The spec of a vocabulary of characters, as SentencePiece makes them."""
    normalizer = parse_metaspace_steps(root)
    model = check_metaspace_model(_check_model(root["model"]))
    check_fields(
        {"end_of_word_suffix": model.get("end_of_word_suffix")},
        "model",
        {"end_of_word_suffix": (None, "")},
    )
    texts = _check_texts(model)
    added = parse_added_tokens(
        root.get("added_tokens", []),
        texts,
        normalizer,
        changes_spaces_later=root.get("normalizer") is None,
    )
    contents = [token.content for token in added]
    byte_ids = parse_byte_ids(texts, contents)
    vocab, merges, merge_ids = _parse_characters(texts, model["merges"], contents)
    prefix, suffix = parse_post_processor(root.get("post_processor"))
    return TokenizerSpec.from_merges(
        vocab,
        merges,
        added,
        pattern=pattern_of_characters(merges),
        normalizer=normalizer,
        prefix_ids=prefix,
        suffix_ids=suffix,
        byte_ids=byte_ids,
        batch_settings=batch_settings,
        merge_ids=merge_ids,
    )


def _parse_characters(
    texts: Entries, merges: object, contents: Sequence[str]
) -> tuple[dict[int, bytes], list[Merge], NDArray[np.uint32] | None]:
    """As `_parse_entries`, of a vocabulary of characters with added tokens of these contents."""
    if isinstance(texts, dict):
        entries, sides = texts, _sides_of_merges(merges)
    else:
        built = texts.build(list(contents), by_characters=True)
        if built is not None:
            return built[0], built[1], built[2].reshape(-1, 3)
        entries, sides = texts.entries(), texts.sides()
    return parse_metaspace_vocab(entries, contents), parse_metaspace_merges(sides), None


_OTHER_MODELS: Final = MappingProxyType(
    {
        "Unigram": "chooses the likeliest pieces (T5, XLNet, ALBERT)",
        "WordPiece": "takes the longest piece of a word (BERT)",
        "WordLevel": "looks up whole words",
    }
)


def _refuse_other_models(root: Mapping[str, object]) -> None:
    """Refuse by its kind a file that is no byte-level BPE, before any field of it is read."""
    model = root["model"]
    if not isinstance(model, dict):
        return
    kind = model.get("type") or _kind_without_type(model)
    if isinstance(kind, str) and kind in _OTHER_MODELS:
        found = f"{kind}, which {_OTHER_MODELS[kind]}"
    elif kind != "BPE" or is_byte_level(root) or is_metaspace(root):
        return
    else:
        found = "BPE of characters, without the bytes for those that it lacks"
    raise FormatError(
        f"tokenizer.json: its model is {found}; this service runs byte-level and "
        f"SentencePiece-style BPE. Encode with the library of that model"
    )


def _kind_without_type(model: Mapping[str, object]) -> str:
    """The kind of a model in files from before `type`."""
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    if "max_input_chars_per_word" in model:
        return "WordPiece"
    return "BPE" if "merges" in model else "WordLevel"


def _check_model(value: object) -> dict[str, object]:
    return check_fields(
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
        # Without effect where the vocabulary has all bytes; see `_parse_missing`.
        ("unk_token", "end_of_word_suffix", "vocab", "merges"),
        ("vocab", "merges"),
    )


def _parse_missing(model: Mapping[str, object], texts: Entries) -> MissingBytes | None:
    """The bytes of UTF-8 that the model lacks. `tokenizers` leaves them out before it merges, or
    gives `unk_token` for each, or with `fuse_unk` for several in a row."""
    found = {byte for byte, text in byte_to_unicode().items() if text in texts}
    values = tuple(sorted(set(range(256)) - NEVER_IN_UTF8 - found))
    if not values or not found:
        return None  # the spec refuses a vocabulary without any
    unk_token, unk_id = model.get("unk_token"), None
    if model.get("byte_fallback") is True:
        raise FormatError(
            f"tokenizer.json: model.byte_fallback is true, and model.vocab lacks the byte "
            f"0x{values[0]:02x}; only false can be read exactly in a vocabulary of bytes"
        )
    if unk_token is not None:
        if not isinstance(unk_token, str) or unk_token not in texts:
            raise FormatError(
                f"tokenizer.json: model.unk_token is {unk_token!r:.60}, which model.vocab lacks, "
                f"as it does the byte 0x{values[0]:02x}: tokenizers cannot encode such text either"
            )
        unk_id = texts[unk_token]
    return MissingBytes(values, unk_id, unk_id is not None and model.get("fuse_unk") is True)


def _check_texts(model: Mapping[str, object], added: object = ()) -> Entries:
    """The model's vocabulary as in the file; checks each id, and that each id occurs only once.

    A token that is also one of the `added` may have two spellings: its content, by which
    `tokenizers` finds its id, and its bytes in the byte alphabet.
    """
    if isinstance(model["merges"], TokenizerCoreError):
        raise model["merges"]
    value = model["vocab"]
    if not is_vocab(value):
        raise FormatError("tokenizer.json: model.vocab is no object")
    if not isinstance(value, dict):
        return value  # checked when it was read
    ids = value.values()
    are_ids = set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MAX_TOKEN_ID
    if are_ids and len(set(ids)) == len(ids):
        return value  # a million entries one by one would take a second
    listed = added if isinstance(added, list) else []
    named = (entry.get("content") for entry in listed if isinstance(entry, dict))
    contents = {content for content in named if isinstance(content, str)}
    owners: dict[int, str] = {}
    for text, id_ in value.items():
        check_id(id_, text)
        owner = owners.setdefault(id_, text)
        if owner is not text and not (
            _spell_the_same(owner, text) and (owner in contents or text in contents)
        ):
            raise _two_tokens_error(id_, owner, text)
    return value


def _spell_the_same(one: str, other: str) -> bool:
    """Whether one is in the byte alphabet what the other is as plain text."""
    pairs = ((one, other), (other, one))
    return any(render_token(text.encode(errors="replace")) == spelt for text, spelt in pairs)


def _two_tokens_error(id_: int, owner: str, text: str) -> FormatError:
    return FormatError(
        f"tokenizer.json: id {id_} stands for two tokens, {owner!r:.60} and {text!r:.60}"
    )


def _bytes_of(
    texts: Mapping[str, int], tokens: Mapping[str, bytes | None], added: Sequence[AddedToken]
) -> tuple[dict[int, bytes], tuple[int, ...]]:
    """id -> bytes of the model's entries, and the ids of the idle ones; `tokens` has each entry
    decoded from the byte alphabet.

    Entries of added tokens are plain text, the others use the alphabet; an ambiguous entry is
    refused. An entry with a character outside the alphabet is idle: no text and no merge gives it,
    and it decodes to itself.
    """
    vocab = dict(zip(texts.values(), map(tokens.__getitem__, texts), strict=True))
    for text in [token.content for token in added if token.content in texts]:
        token, plain = tokens[text], text.encode()
        if token is not None and token != plain:
            raise FormatError(
                f"tokenizer.json: the added token {text!r:.60} is spelt like the bytes "
                f"{token!r:.60} in model.vocab, which gives one id two meanings"
            )
        vocab[texts[text]] = plain
    idle = {id_: text for text, id_ in texts.items() if vocab[id_] is None}
    for id_, text in idle.items():
        vocab[id_] = text.encode()
    return cast("dict[int, bytes]", vocab), tuple(sorted(idle))


def _parse_merges(
    value: object, tokens: Mapping[str, bytes | None], *, idle: bool = False
) -> list[Merge]:
    """The merges, written as "a b" or as ["a", "b"]; `tokens` has most of their sides. With `idle`,
    those of idle entries are left out: no text gives these."""
    texts = _sides_of_merges(value)
    listed = cast("list[object]", value)
    if idle:
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


def _check_cuts_between_bytes(
    pre_tokenizer: object,
    model: Mapping[str, object],
    merges: Sequence[Merge],
    missing: MissingBytes | None,
) -> MissingBytes | None:
    """Refuse steps after a ByteLevel that cut where a merge joins; returns `missing` with `ends`.

    Where no merge joins a token that ends with the byte before a cut to one that begins with the
    byte after it, both sides merge alike with and without the cut, which is therefore left out. Two
    digits with a byte between them that is left out are cut apart, though merges may join them.
    """
    cuts = cuts_between_bytes(pre_tokenizer)
    if cuts is None:
        return missing
    digits, isolates_each = cuts
    lacks_digits = missing is not None and not digits.isdisjoint(missing.values)
    if lacks_digits or model.get("ignore_merges") is True or model.get("end_of_word_suffix"):
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


def _sides_of_merges(value: object) -> list[str]:
    if not isinstance(value, list):
        raise FormatError("tokenizer.json: model.merges is no list")
    return _sides_of(value)


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


def _parse_normalizer(value: object) -> tuple[Normalizer, tuple[NormalizerStep, ...]]:
    """Parse the normalizer: `none`, `nfc`, or `steps` with its steps."""
    steps: list[NormalizerStep] = []
    # A loop, not recursion: newer Pythons parse JSON deeper than their recursion limit.
    waiting = [(value, "normalizer")]
    while waiting:
        step, where = waiting.pop()
        if isinstance(step, dict) and step.get("type") == "Sequence":
            check_fields(step, where, {"type": ("Sequence",)}, ("normalizers",), ("normalizers",))
            listed = step["normalizers"]
            if not isinstance(listed, list):
                raise FormatError(f"tokenizer.json: {where}.normalizers is no list")
            # A path of any length would take quadratic time.
            named = [(one, f"{where:.200}.normalizers[{i}]") for i, one in enumerate(listed)]
            waiting += reversed(named)
        elif step is not None or where != "normalizer":
            steps.append(_parse_step(step, where))
    if not steps:
        return "none", ()
    if steps == [NormalizerStep("NFC")]:
        return "nfc", ()
    try:
        check_steps(tuple(steps))
    except (InvalidSpecError, UnknownPatternError) as error:
        raise FormatError(f"tokenizer.json: normalizer: {error}") from None
    return "steps", tuple(steps)


_FIELDS_OF_STEPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Replace": ("pattern", "content"),
        "Prepend": ("prepend",),
        "Strip": ("strip_left", "strip_right"),
    }
)


def _parse_step(value: object, where: str) -> NormalizerStep:
    kind = value.get("type") if isinstance(value, dict) else None
    names = _FIELDS_OF_STEPS.get(kind, ()) if isinstance(kind, str) else ()
    table = check_fields(value, where, {"type": get_args(StepKind)}, names, ("type", *names))
    try:
        return NormalizerStep.from_fields(table)
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"tokenizer.json: {where}: {error}") from None


def save_tokenizer_json(spec: TokenizerSpec, path: str | os.PathLike[str]) -> None:
    """Write `spec` for the same ids in Hugging Face `tokenizers`, completely or not at all.

    Ranks are written as their equivalent merges (see `tiktoken_file`) with `ignore_merges`.

    Raises:
        FormatError: a custom split pattern of another dialect, two names for an id, or tokens whose
            spelling means another token to `tokenizers`; or it would be too large to be read.
        OSError: the file cannot be written.
    """
    rendered = render_tokenizer_json(spec)
    check_size(rendered, MAX_FILE_BYTES, "the tokenizer.json")
    write_whole_file(path, rendered)


def render_tokenizer_json(spec: TokenizerSpec) -> bytes:
    """Render the `tokenizer.json` as UTF-8; raises as `save_tokenizer_json`."""
    check_one_name_an_id(spec, "a tokenizer.json")
    if spec.byte_ids:
        return _render(
            spec,
            render_metaspace_steps(spec.normalizer),
            render_metaspace_vocab(spec),
            [[render_piece(left), render_piece(right)] for left, right in spec.merges],
        )
    merges = spec.merges
    if spec.kind == "ranks":
        merges = tuple(recover_reachable_merges(spec.token_to_id)[0])
    steps = {
        "normalizer": _render_normalizer(spec),
        "pre_tokenizer": _render_pre_tokenizer(spec),
        "decoder": render_byte_level(),
    }
    pairs = [[render_token(left), render_token(right)] for left, right in merges]
    return _render(spec, steps, _render_vocab(spec), pairs)


def _render_pre_tokenizer(spec: TokenizerSpec) -> dict[str, object]:
    rendered = render_pre_tokenizer(spec.pattern)
    if spec.missing and spec.missing.ends:
        rendered = with_digits_between_bytes(rendered)
    if spec.normalizer != "prefix-space":
        return rendered
    if rendered["type"] != "ByteLevel":
        raise FormatError(
            f"with the split pattern {spec.pattern.name}, a tokenizer.json puts a space before "
            f"each pre-token, and this tokenizer before a text (prefix-space)"
        )
    return rendered | {"add_prefix_space": True}


def _render_normalizer(spec: TokenizerSpec) -> dict[str, object] | None:
    if spec.normalizer == "nfc":
        return {"type": "NFC"}
    steps = [step.fields() for step in spec.normalizer_steps]
    if len(steps) > 1:
        return {"type": "Sequence", "normalizers": steps}
    return steps[0] if steps else None


def _render(
    spec: TokenizerSpec,
    steps: Mapping[str, object],
    vocab: dict[str, int],
    merges: list[list[str]],
) -> bytes:
    by_characters, missing = bool(spec.byte_ids), spec.missing
    unk_id = missing.unk_id if missing else None
    table: dict[str, object] = {
        "version": "1.0",
        "truncation": spec.batch_settings.get("truncation"),
        "padding": spec.batch_settings.get("padding"),
        "added_tokens": [render_added_token(token) for token in spec.added_tokens],
        "normalizer": steps["normalizer"],
        "pre_tokenizer": steps["pre_tokenizer"],
        "post_processor": render_post_processor(spec),
        "decoder": steps["decoder"],
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": next((text for text, id_ in vocab.items() if id_ == unk_id), None),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": spec.word_suffix.decode() or None,
            "fuse_unk": by_characters or (missing is not None and missing.is_fused),
            "byte_fallback": by_characters,
            "ignore_merges": spec.ignore_merges or spec.kind == "ranks",
            "vocab": vocab,
            "merges": merges,
        },
    }
    # Render in pieces: `dumps` would block every other thread for 0.2 s at 200,000 tokens.
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(table)
    return "".join([*pieces, "\n"]).encode()


def _render_vocab(spec: TokenizerSpec) -> dict[str, int]:
    """The model's vocabulary, including the added tokens if their ids require it."""
    contents = {token.id: token.content for token in spec.added_tokens}
    learned = {id_: token for token, id_ in spec.token_to_id.items()}
    unk_id = spec.missing.unk_id if spec.missing else None
    texts: dict[str, int] = {}
    idle = {id_: spec.vocab[id_].decode() for id_ in spec.idle_ids}
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
    wanted = [token.id for token in spec.added_tokens]
    if assign_added_ids(texts, [token.content for token in spec.added_tokens]) != wanted:
        for added in spec.added_tokens:
            if texts.setdefault(added.content, added.id) != added.id:
                raise FormatError(
                    f"the added token {added.content!r:.60} (id {added.id}) is spelt like the "
                    f"token of id {texts[added.content]}; tokenizers would mix them up"
                )
    # Refuse to write a file that cannot be read back.
    tokens = dict(zip(texts, parse_tokens(texts), strict=True))
    _bytes_of(texts, tokens, spec.added_tokens)
    for byte in spec.missing.values if spec.missing else ():
        if render_token(bytes([byte])) in texts:
            raise FormatError(
                f"the added token of the byte 0x{byte:02x} would be the byte itself to tokenizers, "
                f"which this vocabulary lacks; publish the tokenizer as an artifact"
            )
    return dict(sorted(texts.items(), key=lambda item: item[1]))
