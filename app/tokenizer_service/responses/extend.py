"""Bodies with ids that stayed and those after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer_core.spec.chat_templates import ChosenTemplate
from tokenizer_service.responses.chat import template_header
from tokenizer_service.responses.decode import sizes_of
from tokenizer_service.responses.json_values import Rendered, dump, render_each, render_ids
from tokenizer_service.serving.live_tokenizer import LiveTokenizer


class Extended(NamedTuple):
    """Ids, of which the first `n_kept` were given, with their mask if there is one."""

    ids: NDArray[np.uint32]
    n_kept: int
    mask: NDArray[np.uint32] | None
    first_drift: int | None
    template: ChosenTemplate | None

    def render_mask(self) -> Iterator[bytes]:
        """The mask of all ids as JSON."""
        if self.mask is None:
            return iter((b"null",))
        return render_ids(np.pad(self.mask, (0, len(self.ids) - self.n_kept)))


def render_extended(extended: list[Extended], live: LiveTokenizer, *, is_batch: bool) -> Rendered:
    """One extension, or those of a batch."""
    new = [one.ids[one.n_kept :] for one in extended]
    fields: dict[str, list[Any]] = {
        "count": [len(one.ids) for one in extended],
        "first_drift": [one.first_drift for one in extended],
    }
    templates = [one.template for one in extended if one.template is not None]
    if templates:
        fields["chat_template"] = [template.identity for template in templates]
    rest = fields if is_batch else {name: values[0] for name, values in fields.items()}
    chunks = [
        b'{"tokens":',
        *render_each((render_ids(one.ids) for one in extended), is_batch=is_batch),
        b',"mask":',
        *render_each((one.render_mask() for one in extended), is_batch=is_batch),
        b"," + dump(rest)[1:-1],
        b',"tokenizer":%b}' % live.identity_json,
    ]
    named = set(map(template_header, templates))
    headers = named.pop() if len(named) == 1 else ()
    n_bytes = sum(int(sizes_of(ids, live).sum(dtype=np.uint64)) for ids in new)
    return Rendered(chunks, sum(map(len, new)), n_bytes, headers=headers)
