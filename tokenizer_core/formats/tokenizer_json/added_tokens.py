"""The added tokens of a `tokenizer.json`, and their ids.

`tokenizers` ignores the `id` of an added token. A token whose content is a model entry gets that
entry's id; any other gets the next id after the model's *number* of entries. The reader refuses a
file with other ids. If ids have gaps (cl100k), the writer also adds the added tokens to the model's
vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import check_id
from tokenizer_core.formats.tokenizer_json.fields import check_fields
from tokenizer_core.normalizers import normalizer_for
from tokenizer_core.normalizers.nfc import NFC_MAKES
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.added_tokens import ADDED_TOKEN_FLAGS
from tokenizer_core.specials.flags import MatchStream
from tokenizer_core.specials.matcher import SpecialTokenMatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizer_core.formats.tokenizer_json.fields import Entries
    from tokenizer_core.formats.tokenizer_json.normalizer import ParsedNormalizer
    from tokenizer_core.normalizers import Normalizer
    from tokenizer_core.spec import TokenizerSpec

MAX_ADDED_TOKENS: Final = 1 << 17
"""Models of speech have some 65,000; preparing the search for this many takes seconds."""


def parse_added_tokens(value: object, normalizer: ParsedNormalizer) -> list[AddedToken]:
    """The added tokens in the file's order. Raises FormatError: a token is malformed, or cannot be
    found exactly."""
    if not isinstance(value, list):
        raise FormatError("tokenizer.json: added_tokens is no list")
    if len(value) > MAX_ADDED_TOKENS:
        raise FormatError(f"tokenizer.json: there are more than {MAX_ADDED_TOKENS} added_tokens")
    added = [
        _parse_added_token(entry, f"added_tokens[{index}]") for index, entry in enumerate(value)
    ]
    for index, token in enumerate(added):
        if token.normalized:
            _check_normalized(token, f"added_tokens[{index}]", normalizer)
    searched = normalizer_for(normalizer.made, added)
    if searched.steps and not normalizer.is_before_search:
        added = _without_normalized(added)
    elif searched.steps:
        _check_normalized_contents([t.content for t in added if t.normalized], searched)
    return search_together(added, normalizer.made)


def check_added_ids(added: Sequence[AddedToken], entries: Entries) -> None:
    """Refuse tokens to which `tokenizers` gives other ids than the file."""
    wanted = assign_added_ids(entries, [token.content for token in added])
    for token, id_ in zip(added, wanted, strict=True):
        if token.id != id_:
            raise FormatError(
                f"tokenizer.json says id {token.id} for the added token {token.content!r:.60}, "
                f"but Hugging Face's tokenizers gives it {id_}; put the token into model.vocab "
                f"with its id"
            )


def _parse_added_token(entry: object, where: str) -> AddedToken:
    flags = dict.fromkeys((*ADDED_TOKEN_FLAGS, "special"), (False, True))
    free = ("id", "content")
    fields = check_fields(entry, where, flags, free, (*free, *flags))
    content, id_ = fields["content"], fields["id"]
    if not isinstance(content, str) or not content:
        raise FormatError(f"tokenizer.json: {where}.content is {content!a:.60}, no text")
    check_id(id_, content)
    assert isinstance(id_, int)  # noqa: S101 - check_id has refused other types; for mypy
    return AddedToken(content, id_, **{name: fields[name] is True for name in flags})


def search_together(added: list[AddedToken], normalizer: Normalizer) -> list[AddedToken]:
    """The same tokens, none of them `normalized` if one search finds the same as two."""
    if normalizer_for(normalizer, added).steps or _have_two_passes(added):
        return added
    return [replace(token, normalized=False) for token in added]


def _without_normalized(added: Sequence[AddedToken]) -> list[AddedToken]:
    """The same tokens, all searched in the text as given. Raises FormatError if it matters which
    ones are searched first."""
    if _have_two_passes(added):
        index = next(
            i for i, t in enumerate(added) if t.normalized and {" ", "\u2581"} & {*t.content}
        )
        raise FormatError(
            f"tokenizer.json: added_tokens[{index}] has a space or U+2581 and normalized: true. It "
            f"is searched before Metaspace changes the spaces, but after the tokens that are not "
            f"normalized, which cannot be read exactly here; set normalized to false"
        )
    return [replace(token, normalized=False) for token in added]


def _check_normalized(token: AddedToken, where: str, normalizer: ParsedNormalizer) -> None:
    """Refuse a `normalized` token whose matches depend on what cannot be known. With Metaspace,
    spaces are U+2581, which is no white space that a token could include."""
    if normalizer.excludes:
        raise FormatError(
            f"tokenizer.json: {normalizer.excludes}, and {where}.normalized is True; only one of "
            f"them can be read exactly: set normalized to false"
        )
    for flag in ("lstrip", "rstrip"):
        if flag in token.flags and normalizer.made.name in ("metaspace", "metaspace-prepend"):
            raise FormatError(
                f"tokenizer.json: {where}.{flag} of a token with normalized: true depends on the "
                f"normalized text around it, which cannot be read exactly; set normalized to false"
            )


def _check_normalized_contents(contents: Sequence[str], normalizer: Normalizer) -> None:
    """Refuse tokens that are matched in the normalized text as nothing, or as one another."""
    known: dict[str, str] = {"": "no text"}
    for content in contents:
        normalized = normalizer.normalize(content)
        if known.setdefault(normalized, content) is not content:
            raise FormatError(
                f"tokenizer.json: the normalizer makes the added token {content!a:.60} the same as "
                f"{known[normalized]!a:.60}; give it normalized: false"
            )


def check_added_tokens_as_pre_tokens(spec: TokenizerSpec, entries: Entries) -> None:
    """Refuse added tokens of which a plain pre-token can be one; for a spec with `ignore_merges`.

    In this library plain text gives an added token only if merges make it. In `tokenizers` with
    `ignore_merges`, a pre-token that is an entry of `model.vocab` gives that entry. The search for
    added tokens finds them first, with three exceptions: it rejects a match of a `single_word`
    token inside a word, it does not see what the normalizer makes of other text, and it looks for
    `normalized` tokens as the normalizer makes them, where that may be another text.
    """
    may_drop = any(token.single_word for token in spec.added_tokens)
    for token in spec.added_tokens:
        content = token.content
        # In the byte alphabet, printable ASCII without the space stands for itself, and no other.
        is_own_spelling = content.isascii() and content.isprintable() and " " not in content
        if not is_own_spelling or content not in entries or content.encode() in spec.token_to_id:
            continue
        if spec.spelling(token) != content.encode():
            why = "the normalizer changes it"
        elif not token.normalized and (
            spec.normalizer.name == "steps"
            or (spec.normalizer.name == "nfc" and not NFC_MAKES.isdisjoint(content))
        ):
            why = "the normalizer may make it"
        else:
            why = "a token has single_word: true" if may_drop else ""
        if why:
            raise FormatError(
                f"tokenizer.json: the added token {content!a:.60} is in model.vocab, no merge "
                f"makes it, and {why}, so that tokenizers may give it to a whole pre-token "
                f"(model.ignore_merges), which cannot be read exactly; take it out of model.vocab "
                f"if its id stays the same, or encode with Hugging Face's tokenizers"
            )


def _have_two_passes(added: Sequence[AddedToken]) -> bool:
    """Whether it matters which tokens are `normalized`.

    `tokenizers` cuts out all other tokens before it searches for those. Without other flags, this
    equals one search for all tokens, unless a token of the first kind can begin within one of the
    second.
    """
    if any(token.flags not in ([], ["normalized"]) for token in added):
        return True
    first = SpecialTokenMatcher(token.content for token in added if not token.normalized)
    return bool(first) and any(
        token.normalized and _overlaps_any(token.content, first) for token in added
    )


def _overlaps_any(content: str, matcher: SpecialTokenMatcher) -> bool:
    """Whether `content` contains one of the matcher's strings or ends with the beginning of one."""
    stream = MatchStream(matcher)
    return len(stream.feed(content)) > 1 or bool(stream.held)


def assign_added_ids(entries: Entries, contents: Sequence[str]) -> list[int]:
    """The ids that `tokenizers` gives to added tokens, in order; it ignores the ids in the file.

    Example:
        >>> assign_added_ids({"a": 0, "b": 7}, ["<s>", "b", "</s>"])
        [2, 7, 3]
    """
    new: dict[str, int] = {}
    for content in contents:
        if content not in entries:
            new.setdefault(content, len(entries) + len(new))
    return [entries[content] if content in entries else new[content] for content in contents]


def render_added_tokens(spec: TokenizerSpec) -> list[dict[str, object]]:
    """The fields of the added tokens."""
    return [
        {
            "id": token.id,
            "content": token.content,
            **{name: getattr(token, name) for name in (*ADDED_TOKEN_FLAGS, "special")},
        }
        for token in spec.added_tokens
    ]
