"""The responses of /vocab/{id} and /merges: tokens, and the merges that produce them.

The merge trees of a tokenizer are cached as long as the tokenizer is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from weakref import WeakKeyDictionary

from tokenizer_client.schemas.text import MergeNode, MergesRequest, MergesResponse, VocabResponse
from tokenizer_client.schemas.tokens import TokenizerIdentity
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.text.merge_trees import MergeTree, MergeTrees
from tokenizer_service.responses.errors import UnknownTokenError
from tokenizer_service.responses.json_values import describe_token
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_trees: WeakKeyDictionary[Tokenizer, MergeTrees] = WeakKeyDictionary()


def token_details(live: LiveTokenizer, id_: int, max_depth: int) -> VocabResponse:
    """Describe the token `id_` and at most `max_depth` levels of its merges.

    The first call for a large vocabulary takes 0.2 s.
    """
    spec = live.tokenizer.spec
    _require_token(spec, id_)
    trees = _trees_of(live.tokenizer)
    node = _node(trees.tree(id_, max_depth), trees, spec.vocab)
    return VocabResponse(
        id=id_,
        bytes=node.bytes,
        text=node.text,
        rank=node.rank,
        special=id_ in spec.special_tokens.values(),
        parts=trees.parts(id_),
        tree=node,
        tokenizer=TokenizerIdentity(**live.identity),
    )


def list_merges(request: MergesRequest, live: LiveTokenizer) -> MergesResponse:
    """The merges that make the tokens of a request, in the order of learning."""
    spec = live.tokenizer.spec
    ids = set(request.tokens.tolist())
    for id_ in ids:
        _require_token(spec, id_)
    trees = _trees_of(live.tokenizer)
    merges = [
        (id_, *parts, trees.size_with(id_))
        for id_, parts in trees.all_parts(ids).items()
        if parts is not None
    ]
    return MergesResponse(
        merges=sorted(merges, key=itemgetter(3)),
        base_size=trees.base_size,
        full_size=trees.full_size,
        tokenizer=TokenizerIdentity(**live.identity),
    )


def _require_token(spec: TokenizerSpec, id_: int) -> None:
    if id_ not in spec.vocab:
        message = f"The vocabulary has no id {id_}; the largest is {spec.largest_id}."
        raise UnknownTokenError(message)


def _trees_of(tokenizer: Tokenizer) -> MergeTrees:
    trees = _trees.get(tokenizer)
    return trees or _trees.setdefault(tokenizer, MergeTrees(tokenizer.spec))


def _node(tree: MergeTree, trees: MergeTrees, vocab: Mapping[int, bytes]) -> MergeNode:
    parts = None
    if tree.parts is not None:
        left, right = tree.parts
        parts = (_node(left, trees, vocab), _node(right, trees, vocab))
    return MergeNode(
        id=tree.id,
        **describe_token(vocab[tree.id]),
        rank=trees.rank(tree.id),
        parts=parts,
        cut=tree.is_cut,
    )
