"""Hugging Face `tokenizer.json`: byte-level BPE, read and written exactly.

GPT-2, Llama 3 and Qwen files are byte-level BPE. Other settings of the file (a dropout, a prefix
space, another model, normalizer or post-processor, tokens that strip spaces around them) change
ids, so the reader refuses an unknown field by its name and never skips it. The file is long because
reading and writing change together, field by field.

The rules for ids come from the sources of `tokenizers` 0.23 (`added_vocabulary.rs`,
`models/bpe/model.rs`, `pre_tokenizers/byte_level.rs`). One surprise: `tokenizers` ignores the `id`
of an added token. A token whose content is a model entry gets that entry's id; any other gets the
next id after the model's *number* of entries. The reader refuses a file with other ids. If ids have
gaps (cl100k), the writer also adds the added tokens to the model's vocabulary.
"""

from __future__ import annotations

import json
import re
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from tokenizer_core.blobs.atomic_files import read_whole_file, write_whole_file
from tokenizer_core.errors import FormatError, InvalidSpecError, UnknownPatternError
from tokenizer_core.formats.gpt2_files import (
    check_id,
    check_one_name_an_id,
    parse_tokens,
    render_token,
)
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.formats.tokenizer_json_metaspace import (
    check_metaspace_model,
    is_metaspace,
    parse_metaspace_merges,
    parse_metaspace_steps,
    parse_metaspace_vocab,
    render_metaspace_steps,
    render_metaspace_vocab,
    render_piece,
)
from tokenizer_core.formats.tokenizer_json_parts import (
    check_byte_level,
    check_fields,
    is_byte_level,
    parse_post_processor,
    parse_pre_tokenizer,
    render_byte_level,
    render_post_processor,
    render_pre_tokenizer,
)
from tokenizer_core.normalization import NormalizerRun
from tokenizer_core.normalizer_steps import NormalizerStep, StepKind, check_steps
from tokenizer_core.patterns import METASPACE
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.special_tokens import SpecialTokenMatcher
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from tokenizer_core.spec import Normalizer

    Merge = tuple[bytes, bytes]

MAX_FILE_BYTES: Final = 128 << 20
"""The size cap; o200k with all its splits has about 20 MB."""


def load_tokenizer_json(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The spec of a `tokenizer.json`, of kind `merges`.

    Raises:
        FormatError: not JSON, or a field whose effect on ids is not supported (named).
        InvalidSpecError: vocabulary, merges and added tokens do not form a tokenizer.
        OSError: the file cannot be read.
    """
    return parse_tokenizer_json(read_whole_file(path, max_bytes=MAX_FILE_BYTES))


def parse_tokenizer_json(data: bytes) -> TokenizerSpec:
    """Parse the text of a `tokenizer.json` to a spec; raises as `load_tokenizer_json`."""
    return parse_tokenizer_table(parse_strict_json(data, "tokenizer.json"))


def parse_tokenizer_table(value: object) -> TokenizerSpec:
    """Parse the JSON value of a `tokenizer.json` to a spec; raises as `load_tokenizer_json`."""
    root = check_fields(
        value,
        "tokenizer",
        {"version": ("1.0",)},
        # How to cut and fill batches for a model; the service does neither.
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
    if is_metaspace(root):
        return _parse_metaspace(root)
    normalizer, steps = _parse_normalizer(root.get("normalizer"))
    pattern = parse_pre_tokenizer(root["pre_tokenizer"])
    check_byte_level(root["decoder"], "decoder")
    model = _check_model(root["model"])
    texts = _check_texts(model["vocab"])
    added = _parse_added_tokens(root.get("added_tokens", []), texts, normalizer, steps)
    tokens = dict(zip(texts, parse_tokens(texts), strict=True))
    vocab = _bytes_of(texts, tokens, added)
    prefix, suffix = parse_post_processor(root.get("post_processor"))
    return TokenizerSpec.from_merges(
        vocab,
        _parse_merges(model["merges"], tokens),
        added,
        pattern=pattern,
        ignore_merges=model.get("ignore_merges") is True,
        normalizer=normalizer,
        prefix_ids=prefix,
        suffix_ids=suffix,
        normalizer_steps=steps,
        word_suffix=_word_suffix(model),
    )


def _word_suffix(model: Mapping[str, object]) -> bytes:
    suffix = model.get("end_of_word_suffix") or ""
    if not isinstance(suffix, str) or not re.fullmatch("[!-~]*", suffix):
        raise FormatError(
            f"tokenizer.json: model.end_of_word_suffix is {suffix!a:.40}; only visible ASCII can "
            f"be read exactly"
        )
    return suffix.encode()


def _parse_metaspace(root: Mapping[str, Any]) -> TokenizerSpec:
    """The spec of a vocabulary of characters, as SentencePiece makes them."""
    normalizer = parse_metaspace_steps(root)
    model = check_metaspace_model(_check_model(root["model"]))
    check_fields(
        {"end_of_word_suffix": model.get("end_of_word_suffix")},
        "model",
        {"end_of_word_suffix": (None, "")},
    )
    texts = _check_texts(model["vocab"])
    added = _parse_added_tokens(root.get("added_tokens", []), texts, normalizer)
    vocab, byte_ids = parse_metaspace_vocab(texts, added)
    prefix, suffix = parse_post_processor(root.get("post_processor"))
    return TokenizerSpec.from_merges(
        vocab,
        parse_metaspace_merges(_sides_of_merges(model["merges"])),
        added,
        pattern=METASPACE,
        normalizer=normalizer,
        prefix_ids=prefix,
        suffix_ids=suffix,
        byte_ids=byte_ids,
    )


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
            "dropout": (None,),
            "continuing_subword_prefix": (None, ""),
            "fuse_unk": (None, False, True),
            "byte_fallback": (None, False, True),
            "ignore_merges": (None, False, True),
        },
        # The unknown token stands for characters without an entry. The spec refuses a vocabulary
        # that lacks a byte of UTF-8, so that there are none.
        ("unk_token", "end_of_word_suffix", "vocab", "merges"),
        ("vocab", "merges"),
    )


def _check_texts(value: object) -> dict[str, int]:
    """The model's vocabulary as in the file; checks each id, and that each id occurs only once."""
    if not isinstance(value, dict):
        raise FormatError("tokenizer.json: model.vocab is no object")
    owners: dict[int, str] = {}
    for text, id_ in value.items():
        check_id(id_, text)
        if owners.setdefault(id_, text) is not text:
            raise FormatError(
                f"tokenizer.json: id {id_} stands for two tokens, {owners[id_]!r:.60} and "
                f"{text!r:.60}"
            )
    return value


def _bytes_of(
    texts: Mapping[str, int], tokens: Mapping[str, bytes | None], added: Sequence[AddedToken]
) -> dict[int, bytes]:
    """id -> bytes of the model's entries; `tokens` has each entry decoded from the byte alphabet.
    Entries of added tokens are plain text, the others use the alphabet; an ambiguous entry is
    refused."""
    contents = {token.content for token in added}
    vocab: dict[int, bytes] = {}
    for text, id_ in texts.items():
        token = tokens[text]
        if text in contents:
            plain = text.encode()
            if token is not None and token != plain:
                raise FormatError(
                    f"tokenizer.json: the added token {text!r:.60} is spelt like the bytes "
                    f"{token!r:.60} in model.vocab, which gives one id two meanings"
                )
            token = plain
        if token is None:
            raise FormatError(
                f"tokenizer.json: the entry {text!r:.60} of model.vocab is neither in the byte "
                f"alphabet nor an added token: this is not byte-level BPE"
            )
        vocab[id_] = token
    return vocab


def _parse_merges(value: object, tokens: Mapping[str, bytes | None]) -> list[Merge]:
    """The merges, written as "a b" or as ["a", "b"]; `tokens` has most of their sides."""
    texts = _sides_of_merges(value)
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
        raise _merge_error(
            next(index for index, sides in enumerate(merges) if not all(sides)),
            cast("list[object]", value),
        )
    return cast("list[Merge]", merges)


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
            raise _merge_error(index, merges)
    return list(chain.from_iterable(pairs))


def _are_pairs(values: list[Any]) -> bool:
    """Whether all values are lists of two strings (true for an empty list)."""
    if not set(map(type, values)) <= {list} or not set(map(len, values)) <= {2}:
        return False
    return set(map(type, chain.from_iterable(values))) <= {str}


def _merge_error(index: int, merges: list[object]) -> FormatError:
    return FormatError(
        f"tokenizer.json: model.merges[{index}] is {merges[index]!r:.80}, not two tokens of the "
        f"byte alphabet"
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


def _parse_added_tokens(
    value: object,
    texts: Mapping[str, int],
    normalizer: Normalizer,
    steps: tuple[NormalizerStep, ...] = (),
) -> list[AddedToken]:
    """The added tokens in the file's order, if `tokenizers` gives them the ids in the file."""
    if not isinstance(value, list):
        raise FormatError("tokenizer.json: added_tokens is no list")
    added: list[AddedToken] = []
    by_normalized: dict[bool, list[str]] = {True: [], False: []}
    no = (False,)
    for index, entry in enumerate(value):
        fields = check_fields(
            entry,
            f"added_tokens[{index}]",
            {
                "single_word": no,
                "lstrip": no,
                "rstrip": no,
                "normalized": (False, True),
                "special": (False, True),
            },
            ("id", "content"),
            ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"),
        )
        content, id_ = fields["content"], fields["id"]
        if not isinstance(content, str) or not content or not _is_encodable(content):
            raise FormatError(
                f"tokenizer.json: added_tokens[{index}].content is {content!a:.60}, no text"
            )
        check_id(id_, content)
        assert isinstance(id_, int)  # noqa: S101 - check_id has refused other types; for mypy
        is_normalized = fields["normalized"] is True
        added.append(
            AddedToken(content, id_, fields["special"] is True, is_normalized and bool(steps))
        )
        if is_normalized and normalizer == "nfc" and not _is_same_in_nfc(content):
            raise FormatError(
                f"tokenizer.json: added_tokens[{index}].normalized is True; the normalizer NFC may "
                f"make or change {content!a:.60} in a text, which cannot be read exactly"
            )
        if is_normalized and normalizer == "metaspace-prepend":
            raise FormatError(
                f"tokenizer.json: added_tokens[{index}].normalized is True; the normalizer Prepend "
                f"would put a space before {content!a:.60} too, which cannot be read exactly"
            )
        by_normalized[is_normalized].append(content)
    if steps:
        _check_normalized_contents(by_normalized[True], steps)
    else:
        _check_two_passes(by_normalized[False], by_normalized[True])
    wanted = assign_added_ids(texts, [token.content for token in added])
    for token, id_ in zip(added, wanted, strict=True):
        if token.id != id_:
            raise FormatError(
                f"tokenizer.json says id {token.id} for the added token {token.content!r:.60}, "
                f"but Hugging Face's tokenizers gives it {id_}; put the token into model.vocab "
                f"with its id"
            )
    return added


def _check_normalized_contents(contents: Sequence[str], steps: tuple[NormalizerStep, ...]) -> None:
    """Refuse tokens that are matched in the normalized text as nothing, or as one another."""
    run = NormalizerRun(steps)
    known: dict[str, str] = {"": "no text"}
    for content in contents:
        normalized = run.normalize(content)
        if known.setdefault(normalized, content) is not content:
            raise FormatError(
                f"tokenizer.json: the normalizer makes the added token {content!a:.60} the same as "
                f"{known[normalized]!a:.60}; give it normalized: false"
            )


def _is_same_in_nfc(content: str) -> bool:
    """Whether the token is found at the same positions in a text and in the text's NFC.

    NFC changes an ASCII character only by composing it with marks after it, which have to follow
    the token's last character: a letter, or `<`, `=`, `>`. It makes three ASCII characters of
    others: U+212A becomes K, U+037E a semicolon, U+1FEF a grave accent.
    """
    last = content[-1]
    return (
        content.isascii()
        and not (last.isalpha() or last in "<=>")
        and not any(character in "K;`" for character in content)
    )


def _is_encodable(text: str) -> bool:
    """Whether `text` has no lone surrogate, which JSON can express and UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_two_passes(first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse a token of the second kind in which one of the first kind can begin.

    `tokenizers` cuts out all tokens with `normalized: false` before it searches for the others;
    this library takes the leftmost of all, and the longest of those. The results differ only where
    a token of the first kind begins within one of the second: elsewhere the leftmost token is also
    what two passes find.
    """
    if not (first and second):
        return
    in_first = SpecialTokenMatcher(first)
    for content in second:
        if not _overlaps_any(content, in_first):
            continue
        other = next(one for one in first if _overlaps_any(content, SpecialTokenMatcher([one])))
        raise FormatError(
            f"tokenizer.json: the added token {other!r:.60} (normalized: false) can begin within "
            f"{content!r:.60} (normalized: true), which cannot be read exactly; give both the "
            f"same `normalized`"
        )


def _overlaps_any(content: str, matcher: SpecialTokenMatcher) -> bool:
    """Whether `content` contains one of the matcher's strings or ends with the beginning of one."""
    pairs, _, end = matcher.split_settled(content)
    return bool(pairs) or end < len(content)


def assign_added_ids(texts: Mapping[str, int], contents: Sequence[str]) -> list[int]:
    """The ids that `tokenizers` gives to added tokens, in order; it ignores the ids in the file.

    Example:
        >>> assign_added_ids({"a": 0, "b": 7}, ["<s>", "b", "</s>"])
        [2, 7, 3]
    """
    known = dict(texts)
    following = len(texts)
    ids = []
    for content in contents:
        if content not in known:
            known[content] = following
            following += 1
        ids.append(known[content])
    return ids


def save_tokenizer_json(spec: TokenizerSpec, path: str | os.PathLike[str]) -> None:
    """Write `spec` for the same ids in Hugging Face `tokenizers`, completely or not at all.

    Ranks are written as their equivalent merges (see `tiktoken_file`) with `ignore_merges`.

    Raises:
        FormatError: a custom split pattern of another dialect, two names for an id, or tokens whose
            spelling means another token to `tokenizers`.
        OSError: the file cannot be written.
    """
    write_whole_file(path, render_tokenizer_json(spec))


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
        "pre_tokenizer": render_pre_tokenizer(spec.pattern),
        "decoder": render_byte_level(),
    }
    pairs = [[render_token(left), render_token(right)] for left, right in merges]
    return _render(spec, steps, _render_vocab(spec), pairs)


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
    by_characters = bool(spec.byte_ids)
    table: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_render_added_token(token) for token in spec.added_tokens],
        "normalizer": steps["normalizer"],
        "pre_tokenizer": steps["pre_tokenizer"],
        "post_processor": render_post_processor(spec),
        "decoder": steps["decoder"],
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": spec.word_suffix.decode() or None,
            "fuse_unk": by_characters,
            "byte_fallback": by_characters,
            "ignore_merges": spec.ignore_merges or spec.kind == "ranks",
            "vocab": vocab,
            "merges": merges,
        },
    }
    # Render in pieces: `dumps` would block every other thread for 0.2 s at 200,000 tokens.
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(table)
    return "".join([*pieces, "\n"]).encode()


def _render_added_token(token: AddedToken) -> dict[str, object]:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": token.normalized,
        "special": token.special,
    }


def _render_vocab(spec: TokenizerSpec) -> dict[str, int]:
    """The model's vocabulary, including the added tokens if their ids require it."""
    ids = {token.id for token in spec.added_tokens}
    learned = {id_: token for token, id_ in spec.token_to_id.items()}
    texts: dict[str, int] = {}
    for id_, token in sorted(spec.vocab.items()):
        if id_ in ids and id_ not in learned:
            continue
        text = render_token(token)
        if text in texts:
            raise FormatError(
                f"ids {texts[text]} and {id_} stand for the same bytes {token!r:.60}, which "
                f"tokenizer.json cannot hold"
            )
        texts[text] = id_
    contents = [token.content for token in spec.added_tokens]
    wanted = [token.id for token in spec.added_tokens]
    if assign_added_ids(texts, contents) != wanted:
        for added in spec.added_tokens:
            if texts.setdefault(added.content, added.id) != added.id:
                raise FormatError(
                    f"the added token {added.content!r:.60} (id {added.id}) is spelt like the "
                    f"token of id {texts[added.content]}; tokenizers would mix them up"
                )
    # Refuse to write a file that cannot be read back.
    _bytes_of(texts, dict(zip(texts, parse_tokens(texts), strict=True)), spec.added_tokens)
    return dict(sorted(texts.items(), key=lambda item: item[1]))
