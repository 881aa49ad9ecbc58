"""Models of other algorithms (WordPiece, Unigram, WordLevel), run by the library `tokenizers`.

`Tokenizer.load` and the commands return a `LibraryTokenizer` for their `tokenizer.json`. It has no
spec, so nothing publishes or serves it: its ids need not decode to the text, and nothing bounds the
time of its expressions.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tokenizer_core.engines.base import join_tokens, list_ids, require_characters
from tokenizer_core.errors import FormatError, OtherModelError, missing_extra
from tokenizer_core.text.drift import decode_rows, list_rows
from tokenizer_core.tokenizer import Tokenizer, list_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Ids


@contextmanager
def _naming_failures() -> Iterator[None]:
    """Raise OtherModelError where the library fails on a text, as it does if the vocabulary lacks
    the unknown token of its file."""
    try:
        yield
    except Exception as error:
        # It raises no narrower class.
        raise OtherModelError(
            f"the library tokenizers cannot encode the text: {error!s:.200}"
        ) from error


class LibraryTokenizer(Tokenizer):
    """A tokenizer whose ids are those of the library `tokenizers`: `encode`, `decode`, `count` and
    their batches, offsets, `truncate_text` and `chunk_text`. All other methods raise
    OtherModelError. A truncation and padding that the file asks for are left out: the ids are those
    of the whole text.

    `allowed_special` is `"all"` or `"none"`, and no special token can be disallowed; anything else
    is a ValueError. `num_threads` has no effect: the library uses all processors for a batch,
    unless TOKENIZERS_PARALLELISM is `false`.
    """

    def __init__(self, data: str) -> None:
        """Read the text of a `tokenizer.json`.

        Raises:
            FormatError: the library cannot read it.
            ImportError: the library is not installed.
        """
        self._data = data
        self._library = self._read(encode_special_tokens=False)

    def _read(self, *, encode_special_tokens: bool) -> Any:
        import tokenizers

        try:
            library = tokenizers.Tokenizer.from_str(self._data)
        except Exception as error:
            # It raises no narrower class.
            raise FormatError(f"the library tokenizers cannot read it: {error!s:.200}") from error
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = encode_special_tokens
        return library

    @cached_property
    def _entries(self) -> dict[int, bytes]:
        return {id_: token.encode() for token, id_ in self._library.get_vocab().items()}

    @cached_property
    def _library_of_plain_text(self) -> Any:
        return self._read(encode_special_tokens=True)

    def _encode(
        self, text: str, allowed: Allowed, disallowed: Disallowed, add_special_tokens: bool
    ) -> Any:
        require_characters(text)
        library = self._chosen(allowed, disallowed)
        with _naming_failures():
            return library.encode(text, add_special_tokens=add_special_tokens)

    def _chosen(self, allowed: Allowed, disallowed: Disallowed) -> Any:
        if allowed not in ("all", "none") or disallowed:
            raise OtherModelError(
                "the library tokenizers takes allowed_special 'all' or 'none' "
                "(--allowed-special), and no disallowed_special"
            )
        return self._library if allowed == "all" else self._library_of_plain_text

    def __getattr__(self, name: str) -> NoReturn:
        # Every method that is not here reads the spec, the engine or what follows from them.
        if name.startswith("__") or not name.startswith("_"):
            raise AttributeError(name)
        raise OtherModelError(
            "this tokenizer is run by the library tokenizers, which encodes, decodes, counts, "
            "truncates and gives offsets; it has no byte-level BPE to publish, serve or convert"
        )

    @property
    def engine_name(self) -> str:
        """`tokenizers`."""
        return "tokenizers"

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including added ones."""
        return int(self._library.get_vocab_size())

    @property
    def n_vocab(self) -> int:
        """The largest id + 1."""
        return 1 + max(self._entries)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens and their ids, a new dict."""
        added = self._library.get_added_tokens_decoder()
        return {token.content: id_ for id_, token in added.items() if token.special}

    def encode(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The ids of `text`; `add_special_tokens` adds those of the post-processor (`[CLS]`)."""
        encoded = self._encode(text, allowed_special, disallowed_special, add_special_tokens)
        return list(encoded.ids)

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        num_threads: int | None = None,
    ) -> NDArray[np.uint32]:
        """As `encode`, shape (n_tokens,), uint32."""
        encoded = self._encode(text, allowed_special, disallowed_special, add_special_tokens)
        import numpy as np

        return np.array(encoded.ids, np.uint32)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        unit: Literal["byte", "char"] = "byte",
    ) -> tuple[list[int], NDArray[np.uint64]]:
        """The ids, and the start and end of each in `text` as the library gives them: shape
        (n_tokens, 2), uint64."""
        if unit not in ("byte", "char"):
            raise ValueError(f"unit must be 'byte' or 'char', not {unit!r:.40}")
        encoded = self._encode(text, allowed_special, disallowed_special, add_special_tokens)
        import numpy as np

        offsets = np.array(encoded.offsets, np.uint64).reshape(-1, 2)
        if unit == "byte":
            sizes = np.fromiter((len(char.encode()) for char in text), np.uint64, len(text))
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)[offsets]
        return list(encoded.ids), offsets

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        num_threads: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> list[list[int]]:
        """The ids of each text, in order."""
        texts = list_texts(texts)
        for text in texts:
            require_characters(text)
        library = self._chosen(allowed_special, disallowed_special)
        with _naming_failures():
            encoded = library.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [list(each.ids) for each in encoded]

    def count(
        self,
        text: str,
        *,
        limit: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> int:
        """The number of ids of `text`, with any `limit`."""
        return len(self._encode(text, allowed_special, disallowed_special, add_special_tokens))

    def decode(self, ids: Ids, errors: str = "replace", skip_special_tokens: bool = False) -> str:
        """The text of `ids`, which need not be the text that was encoded; `errors` has no effect.
        Raises UnknownTokenIdError: an id is not in the vocabulary; names index and id."""
        listed = list_ids(ids)
        join_tokens(self._entries, listed)  # raises for what is no id
        plain = list(map(operator.index, listed))
        return str(self._library.decode(plain, skip_special_tokens=skip_special_tokens))

    def decode_batch(
        self,
        batch: Iterable[Ids],
        errors: str = "replace",
        skip_special_tokens: bool = False,
        *,
        num_threads: int | None = None,
    ) -> list[str]:
        """The text of each element, in order."""
        return decode_rows(
            list_rows(batch), lambda ids: self.decode(ids, errors, skip_special_tokens)
        )

    def __repr__(self) -> str:
        model = type(self._library.model).__name__
        return f"<LibraryTokenizer {model}: {self.vocab_size} tokens, by the library tokenizers>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LibraryTokenizer):
            return self._data == other._data
        return False if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[object, ...]:
        return LibraryTokenizer, (self._data,)


def load_library_tokenizer(path: str | PathLike[str], refused: OtherModelError) -> LibraryTokenizer:
    """The tokenizer of a file, which was refused for its model.

    Raises:
        OtherModelError: it is a folder, whose ids do not follow from one file, or the library is
            not installed.
        FormatError: the library cannot read it.
    """
    if Path(path).is_dir():
        raise refused
    try:
        return LibraryTokenizer(Path(path).read_text("utf-8"))
    except ImportError:
        what = f"{refused}; its library, which would run it,"
        raise missing_extra(OtherModelError, what, "tokenizers") from None
