"""TokenFilesPlan: all decisions about token files before the first id is written.

An impossible plan fails here, before hours of encoding: ids do not fit, the layout is unknown, or
the tokenizer lacks the end-of-document token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tokenizer_core.corpus.token_layouts import TokenLayout, Width, choose_width, find_layout
from tokenizer_core.errors import TokenFilesPlanError, missing_extra
from tokenizer_core.spec import spec_of
from tokenizer_core.spec.document_end import choose_document_end
from tokenizer_core.specials.policy import resolve_policy
from tokenizer_core.splitting.patterns import SplitPattern

if TYPE_CHECKING:
    from tokenizer_core.registry import ArtifactRef
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer

Split = Literal["train", "validation"]
OverLength = Literal["truncate", "drop"]

SPLITS: Final[tuple[Split, ...]] = ("train", "validation")
ENDS_SUFFIX: Final = ".document-ends.u64"
USE_SUFFIX: Final = ".token-use.u64"
MASK_SUFFIX: Final = ".loss-mask.u8"
OVER_LENGTHS: Final[tuple[OverLength, ...]] = ("truncate", "drop")


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """The tokenizer that wrote the ids: its fingerprint (sha256 over everything that decides an
    id), its published name and version, or the name of its preset, if any, and facts for people."""

    fingerprint: str
    name: str | None
    version: str | None
    pattern: SplitPattern
    unicode_tables: str
    normalizer: str
    vocab_size: int
    largest_id: int

    @classmethod
    def of(cls, spec: TokenizerSpec, ref: ArtifactRef | str | None = None) -> TokenizerIdentity:
        """The identity of a spec, published as `ref` or of the preset of that name."""
        return cls(
            fingerprint=spec.fingerprint,
            name=ref if ref is None or isinstance(ref, str) else ref.name,
            version=None if ref is None or isinstance(ref, str) else ref.version,
            pattern=spec.pattern,
            unicode_tables=spec.unicode_tables,
            normalizer=spec.normalizer.name,
            vocab_size=spec.vocab_size,
            largest_id=spec.largest_id,
        )

    @property
    def label(self) -> str | None:
        """`NAME@VERSION`, or the name of the preset."""
        return f"{self.name}@{self.version}" if self.version else self.name

    def __str__(self) -> str:
        return f"{self.label + ', ' if self.label else ''}fingerprint {self.fingerprint[:12]}"


@dataclass(frozen=True, slots=True)
class TokenFilesPlan:
    """How token files are written. Make it with `plan_token_files`, which checks it.

    - `dtype`: `uint16` or `uint32`. `tokens_per_shard`: None for one file per split.
    - `recognised_special`: the added tokens that the encoding recognises, special or not, and
      `special_ids` their ids; `forbidden_special`: those that it refuses. `specials_by_default`:
      nobody named them, so that `encode_corpus` chooses them by the format of the files.
    - `begin_of_document_id`, `end_of_document_id`: the first and last id of each document, or None.
      `end_of_document`: the last token, and `end_reason` why it is that one. `not_added`: tokens
      that the post-processor puts around a text, and that documents do not get.
    - `seed`: of the shuffle and the splits; None if the documents keep their order.
    - `loss_mask`: whether each shard has a file of one byte per id, 1 where the loss counts.
    - `max_length`: the most ids of a document, with those around it; None for no limit.
      `over_length`: what becomes of a longer one, `truncate` or `drop`.
    """

    layout_name: str
    dtype: Width
    tokens_per_shard: int | None
    tokenizer: TokenizerIdentity
    recognised_special: tuple[str, ...] = ()
    special_ids: tuple[int, ...] = ()
    forbidden_special: tuple[str, ...] = ()
    begin_of_document_id: int | None = None
    end_of_document_id: int | None = None
    end_of_document: str | None = None
    end_reason: str = ""
    not_added: tuple[str, ...] = ()
    seed: int | None = None
    loss_mask: bool = False
    max_length: int | None = None
    over_length: OverLength = "truncate"
    specials_by_default: bool = field(default=False, compare=False)

    @property
    def layout(self) -> TokenLayout:
        """The layout with the name `layout_name`."""
        return find_layout(self.layout_name)

    @property
    def disk_dtype(self) -> np.dtype[Any]:
        """The stored dtype of an id, little-endian."""
        return self.layout.disk_dtype(self.dtype)

    @property
    def end_in_words(self) -> str:
        """What ends a document, why, and what is not added, in one line."""
        token = self.end_of_document
        end = "no token" if token is None else f"the token {token!r:.60}"
        left_out = f"; not added: {' '.join(self.not_added)}" if self.not_added else ""
        return f"{end} ends a document: {self.end_reason}{left_out}"

    def shard_name(self, split: Split, index: int) -> str:
        """The file of ids of shard `index` (from 0): `train.bin`, or `train_000000.bin` if the plan
        has shards."""
        number = "" if self.tokens_per_shard is None else f"_{index:06d}"
        return f"{split_stem(split)}{number}{self.layout.suffix}"

    def file_names(self, split: Split, index: int) -> list[str]:
        """All files of shard `index`: the ids, the `.idx` or `.parquet`, the mask."""
        name = self.shard_name(split, index)
        stem = name.removesuffix(self.layout.suffix)
        index_names = [stem + suffix] if (suffix := self.layout.index_suffix) else []
        mask_names = [stem + MASK_SUFFIX] if self.loss_mask else []
        return [name, *index_names, *mask_names]

    def check(self) -> None:
        """Raise TokenFilesPlanError unless files can be written by this plan."""
        for name in ("seed", "max_length", "tokens_per_shard"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise TokenFilesPlanError(f"{name} is a whole number, not {value!r:.40}")
        if type(self.loss_mask) is not bool:
            raise TokenFilesPlanError(f"loss_mask is True or False, not {self.loss_mask!r:.40}")
        layout = self.layout
        if choose_width(self.dtype, self.tokenizer.largest_id) != self.dtype:
            raise TokenFilesPlanError(f"a plan has a dtype, not {self.dtype}")
        if self.seed is not None and self.seed < 0:
            raise TokenFilesPlanError("seed must be at least 0")
        if self.over_length not in OVER_LENGTHS:
            raise TokenFilesPlanError(
                f"over_length cannot be {self.over_length!r:.40}; take {' or '.join(OVER_LENGTHS)}"
            )
        around = (self.begin_of_document_id, self.end_of_document_id)
        least = 1 + sum(id_ is not None for id_ in around)
        if self.max_length is not None and self.max_length < least:
            raise TokenFilesPlanError(
                f"max_length is {self.max_length}; it must be at least {least}: one id and those "
                f"around a document"
            )
        most = layout.max_tokens_per_shard
        if self.tokens_per_shard is None:
            fits = most is None
        else:
            fits = 1 <= self.tokens_per_shard <= (most or self.tokens_per_shard)
        if not fits:
            bound = f"between 1 and {most}" if most else "at least 1"
            raise TokenFilesPlanError(
                f"tokens_per_shard is {self.tokens_per_shard}; in the layout {layout.name} it "
                f"must be {bound}"
            )


def split_stem(split: str) -> str:
    """What the names of a split's files begin with, as trainers expect: nanoGPT opens `val.bin`.

    Example:
        >>> split_stem("validation")
        'val'
    """
    return "val" if split == "validation" else split


def plan_token_files(
    tokenizer: Tokenizer,
    *,
    layout: str = "raw",
    dtype: Literal["auto"] | Width = "auto",
    tokens_per_shard: int | None = None,
    begin_of_document: str | None = None,
    end_of_document: str | None = None,
    allowed_special: Allowed | None = None,
    disallowed_special: Disallowed = (),
    seed: int | None = None,
    ref: ArtifactRef | str | None = None,
    loss_mask: bool = False,
    max_length: int | None = None,
    over_length: OverLength = "truncate",
) -> TokenFilesPlan:
    """A checked plan of token files for `tokenizer`.

    `layout` is one of `LAYOUTS`. `dtype="auto"` selects uint16 if the largest id (not the number of
    tokens) is at most 65,535, else uint32. `tokens_per_shard` is the number of ids per file; None
    writes one file per split (for `llmc`, whose file size is limited, files of 100,000,000 ids).
    `begin_of_document` and `end_of_document` name the special tokens around each document; by
    default nothing begins one, and `find_document_end` ends it; empty for none. `allowed_special`
    and `disallowed_special` say which special tokens count in the text that `encode_corpus` reads:
    by default all if every file is plain text; else one is an error, in any of them. `ref` is the
    published version of the tokenizer, or the name of its preset. With `loss_mask` each id has a
    byte that is 1 where the loss counts, and by default nothing ends a document. `encode_corpus`
    truncates or drops documents of more than `max_length` ids, those around them included; a
    truncated one keeps its end-of-document id.

    Raises:
        TokenFilesPlanError: ids do not fit into `dtype`, the layout is unknown, cannot have this
            number of tokens or needs pyarrow, the tokenizer lacks a special token, nothing says
            which one ends a document, the seed is below 0, or `max_length` has no room for a
            document.
        ValueError: `allowed_special` names a token that the tokenizer does not have.
    """
    if layout == "parquet" and find_spec("pyarrow") is None:
        raise missing_extra(TokenFilesPlanError, "the layout parquet", "parquet")
    spec = spec_of(tokenizer)
    default = find_layout(layout).default_tokens_per_shard
    specials = specials_of_documents(allowed_special, disallowed_special, is_text=True)
    try:
        end, end_reason = choose_document_end(spec, end_of_document, has_loss_mask=loss_mask)
    except LookupError as error:
        raise TokenFilesPlanError(
            f"{error}; name one of its special tokens with --end-of-document (end_of_document), "
            f"or '' for none"
        ) from None
    begin_id, end_id = _special_id(spec, begin_of_document or None), _special_id(spec, end)
    around = {} if loss_mask else dict.fromkeys((*spec.prefix_ids, *spec.suffix_ids))
    plan = TokenFilesPlan(
        layout_name=layout,
        dtype=choose_width(dtype, spec.largest_id),
        tokens_per_shard=default if tokens_per_shard is None else _plain(tokens_per_shard),
        tokenizer=TokenizerIdentity.of(spec, ref),
        **_special_fields(spec, specials),
        specials_by_default=allowed_special is None,
        begin_of_document_id=begin_id,
        end_of_document_id=end_id,
        end_of_document=end,
        end_reason=end_reason,
        not_added=tuple(
            spec.vocab[id_].decode(errors="replace")
            for id_ in around
            if id_ not in (begin_id, end_id)
        ),
        seed=_plain(seed),
        loss_mask=_plain(loss_mask),
        max_length=_plain(max_length),
        over_length=over_length,
    )
    plan.check()
    return plan


def plan_for_records(plan: TokenFilesPlan, spec: TokenizerSpec) -> TokenFilesPlan:
    """The plan for files of which one is JSON lines or Parquet: by default no document of any of
    them may hold a special token."""
    if not plan.specials_by_default:
        return plan
    return replace(plan, **_special_fields(spec, specials_of_documents(None, is_text=False)))


def _special_fields(spec: TokenizerSpec, specials: dict[str, Any]) -> dict[str, Any]:
    recognised, forbidden = map(sorted, resolve_policy(spec.added_tokens, *specials.values()))
    return {
        "recognised_special": tuple(recognised),
        "special_ids": tuple(spec.added_ids[name] for name in recognised),
        "forbidden_special": tuple(forbidden),
    }


def specials_of_documents(
    allowed: Allowed | None, disallowed: Disallowed = (), *, is_text: bool
) -> dict[str, Any]:
    """`allowed_special` and `disallowed_special` of `plan_token_files`, for those of a caller.

    In plain text, where special tokens mark documents, None means all. In JSON lines and Parquet
    (not `is_text`) nothing says whether a special token in a document is meant as one, so that None
    forbids all.
    """
    if allowed is None and not is_text:
        return {"allowed_special": "none", "disallowed_special": "all"}
    allowed = "all" if allowed is None else allowed
    return {"allowed_special": allowed, "disallowed_special": disallowed}


def _plain(value: Any) -> Any:
    """The Python value of one of NumPy, which JSON cannot hold."""
    return value.item() if isinstance(value, np.generic) else value


def _special_id(spec: TokenizerSpec, name: str | None) -> int | None:
    if name is None:
        return None
    if name not in spec.special_tokens:
        listed = ", ".join(map(repr, sorted(spec.special_tokens)[:8])) or "none at all"
        raise TokenFilesPlanError(
            f"the tokenizer has no special token {name!r:.60} to put around documents; it has "
            f"{listed}"
        )
    return spec.special_tokens[name]
