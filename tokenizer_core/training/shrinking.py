"""Shrinking a tokenizer: the tokens that a text uses, and those that its merges pass through.

On that text the smaller tokenizer gives the same tokens. Encoding applies the merge of the lowest
rank of those that apply. Each merge of the text makes a token, or a part of one that is in use: all
are kept, in order. So the merge of the lowest rank is the same at every step, as the others that
apply are some of those before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.formats.tokenizer_json.post_processor import (
    ids_of_post_processor,
    renumber_post_processor,
)
from tokenizer_core.spec import Alphabet, TokenizerSpec, require_spec
from tokenizer_core.spec.alphabet import pattern_of_characters
from tokenizer_core.text.merge_trees import MAX_TREE_TOKEN_BYTES, MergeTrees
from tokenizer_core.text.streaming import encode_pieces
from tokenizer_core.training.id_maps import IdMap

if TYPE_CHECKING:
    from tokenizer_core.tokenizer import Tokenizer


def used_ids(tokenizer: Tokenizer, pieces: Iterable[tuple[str, bool]]) -> list[int]:
    """The ids, ascending, that documents give in which special tokens are recognised; they come in
    pieces, each with whether it is the last of its document: `[("a text", True), ...]`.

    Raises:
        PreTokenTooLongError, UnicodeEncodeError: as `encode_pieces`.
        TypeError: a piece is no pair.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> used_ids(Tokenizer.from_preset("gpt2"), [("Hello, ", False), ("world", True)])
        [11, 995, 15496]
    """
    is_used = np.zeros(tokenizer.spec.largest_id + 1, dtype=np.bool_)
    for ids in encode_pieces(tokenizer, map(_checked_piece, pieces)):
        is_used[ids] = True
    found: list[int] = np.flatnonzero(is_used).tolist()
    return found


def _checked_piece(piece: tuple[str, bool]) -> tuple[str, bool]:
    if isinstance(piece, str):
        raise TypeError(
            "pieces are pairs of a text and whether it is the last of its document, such as "
            "[(text, True) for text in texts]"
        )
    return piece


def shrink(base: TokenizerSpec, used: Iterable[int]) -> tuple[TokenizerSpec, IdMap]:
    """The tokenizer with these tokens of `base`, and its ids. It also keeps all bytes, the added
    tokens, and the tokens that merges pass through. New ids have no gaps and the order of the old.

    Raises:
        InvalidSpecError: an id of `used`, of the padding or of the post-processor has no token.
    """
    require_spec(base)
    alphabet, missing, unk_id = base.alphabet, base.alphabet.missing, base.alphabet.unk_id
    kept = {token.id for token in base.added_tokens}.union(used, base.prefix_ids, base.suffix_ids)
    kept.update(i for i, t in base.vocab.items() if t and len(alphabet.bytes_in_text(t)) == 1)
    kept.update([] if unk_id is None else [unk_id])
    settings: dict[str, Any] = dict(base.batch_settings)
    kept.update([settings["padding"]["pad_id"]] if "padding" in settings else [])
    around = base.post_processor
    kept.update([] if around is None else ids_of_post_processor(around))
    if unknown := kept - base.vocab.keys():
        raise InvalidSpecError(f"id {min(unknown)} of the tokens to keep has no token")
    ranks = _close(base, kept)
    new_ids = {old: new for new, old in enumerate(sorted(kept))}
    merges = tuple(base.merges[rank] for rank in sorted(ranks))
    if "padding" in settings:
        pad_id = new_ids[settings["padding"]["pad_id"]]
        settings["padding"] = settings["padding"] | {"pad_id": pad_id}
    if missing and unk_id is not None:
        missing = replace(missing, unk_id=new_ids[unk_id])
    spec = replace(
        base,
        vocab={new: base.vocab[old] for old, new in new_ids.items()},
        merges=merges,
        pattern=pattern_of_characters(merges) if alphabet.has_characters else base.pattern,
        prefix_ids=tuple(map(new_ids.__getitem__, base.prefix_ids)),
        suffix_ids=tuple(map(new_ids.__getitem__, base.suffix_ids)),
        alphabet=Alphabet(
            tuple(new_ids.get(id_, -1) for id_ in alphabet.byte_ids),
            missing,
            alphabet.word_suffix,
            tuple(new_ids[id_] for id_ in alphabet.idle_ids if id_ in new_ids),
        ),
        batch_settings=settings,
        post_processor=around and renumber_post_processor(around, new_ids.__getitem__),
        added_tokens=tuple(replace(token, id=new_ids[token.id]) for token in base.added_tokens),
        model_added_ids=tuple(map(new_ids.__getitem__, base.model_added_ids)),
    )
    spec.check()
    return spec, IdMap.of_kept(base, new_ids)


def _close(base: TokenizerSpec, kept: set[int]) -> set[int]:
    """Add the tokens that merges pass through to `kept`; the ranks of those merges, if `base` lists
    merges."""
    trees = MergeTrees(base)
    ranks: set[int] = set()
    waiting = list(kept)
    while waiting:
        id_ = waiting.pop()
        sides: list[int] = []
        if base.kind == "ranks":
            sides += trees.parts(id_) or ()
        else:
            made_by = trees.ranks_of(id_)
            if len(made_by) > 1 and len(base.vocab[id_]) <= MAX_TREE_TOKEN_BYTES:
                made_by = [rank for rank in [trees.rank(id_)] if rank is not None]
            ranks.update(made_by)
            sides += (base.token_to_id[side] for rank in made_by for side in base.merges[rank])
        waiting += (side for side in sides if side not in kept)
        kept.update(sides)
    return ranks
