"""Added tokens."""

from __future__ import annotations

import re
import warnings
from itertools import starmap
from operator import add
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

_SPECIAL_SHAPE: Final = re.compile(rb"<[!-;=?-~]*[A-Za-z][!-;=?-~]*>|\[[A-Z_]*[A-Z][0-9A-Z_]*\]")


def warn_of_unmarked(spec: TokenizerSpec, *, stacklevel: int = 2) -> None:
    """Warn if `spec` has a token of special shape (`<|endoftext|>`, `<s>`, `[CLS]`) that is not an
    added token and that no merge makes: no text gives its id.

    Formats without a list of special tokens leave that list to the caller, who may forget it.
    `stacklevel` as in `warnings.warn`, counted from the caller.
    """
    added = {token.id for token in spec.added_tokens}
    shaped = [
        (id_, token)
        for id_, token in spec.vocab.items()
        if token[:1] in (b"<", b"[") and id_ not in added and _SPECIAL_SHAPE.fullmatch(token)
    ]
    if not shaped or spec.kind != "merges":
        return
    made = set(starmap(add, spec.merges))
    unmarked = [(id_, token.decode()) for id_, token in sorted(shaped) if token not in made]
    if unmarked:
        first_id, first = unmarked[0]
        shown = [repr(token) for _, token in unmarked[:4]] + ["..."] * (len(unmarked) > 4)
        warnings.warn(
            f"the vocabulary has tokens that look special and are not declared ({len(unmarked)}), "
            f"so no text gives their ids; pass special_tokens=[{', '.join(shown)}], or on the "
            f"command line --special '{first}={first_id}'",
            stacklevel=stacklevel + 1,
        )
