r"""`vocab.pkl` and `merges.pkl`: the service's own files, read without trusting them.

A pickle is a program. Refusing every global is not enough: nine bytes can request two gigabytes of
memo, and keys that collide in the hash table cost seconds. A scanner therefore reads the bytes
first. It knows the two shapes of these files (`dict[int, bytes]` and `list[tuple[bytes, bytes]]`),
allows only the opcodes that CPython's pickler writes for them, and checks every length, index and
integer against the data. Only then does an unpickler that cannot look up any global build the
objects. The scanner is handwritten because `pickletools.genops` decodes an argument before its
opcode can be refused (a 32 MB escaped string becomes 128 MB); a test compares both. It is as fast:
a million opcodes, the merges of o200k, take 0.2 s.

Protocols 3, 4 and 5 are supported. Protocols 0 to 2 have no opcode for bytes: they call the global
`_codecs.encode`, which no safe reader can allow.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from tokenizer_core.blobs.atomic_files import check_size, read_whole_file
from tokenizer_core.errors import FormatError, UnsafePickleError
from tokenizer_core.formats.gpt2_files import check_one_name_an_id
from tokenizer_core.formats.tiktoken_file import check_is_plain, recover_merges
from tokenizer_core.spec.checks import MAX_TOKEN_ID, gaps_in

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from tokenizer_core.spec import TokenizerSpec

    PlainObject = dict[int, bytes] | list[tuple[bytes, bytes]]

PICKLE_NAMES: Final = ("vocab.pkl", "merges.pkl")
MAX_PICKLE_BYTES: Final = 32 << 20
"""The size cap; the 200,000 entries of o200k take 3 MB."""

MAX_ITEMS: Final = MAX_TOKEN_ID + 1
"""Limit of the entries of a vocabulary or of a list of merges."""

_REMEDY: Final = "re-save it with pickle.dump(plain_object, file, protocol=4)"
_BATCH: Final = 1000  # items per MARK, as CPython writes them

_PROTO, _FRAME, _STOP, _MARK = 0x80, 0x95, ord("."), ord("(")
_MEMOIZE, _BINPUT, _LONG_BINPUT = 0x94, ord("q"), ord("r")
_BINGET, _LONG_BINGET = ord("h"), ord("j")
_SHORT_BINBYTES, _BINBYTES = ord("C"), ord("B")
_BININT1, _BININT2, _BININT = ord("K"), ord("M"), ord("J")

# A state is a table: each possible next word, and the state it leads to. Words: i an int, b bytes,
# t TUPLE2, ( MARK, u SETITEMS, s SETITEM, e APPENDS, a APPEND. No batch is empty, so the number of
# items bounds the number of opcodes.
_State = dict[str, "_State"]


def _link(transitions: str) -> _State:
    """The start state of a grammar written as `state word next; ...`; the first one is `-`."""
    states: dict[str, _State] = {}
    for transition in transitions.split(";"):
        state, word, following = transition.split()
        states.setdefault(state, {})[word] = states.setdefault(following, {})
    return states["-"]


_DICT_START: Final = _link("- ( m; m i mi; mi b m+; m+ i mi; m+ u -; - i i; i b ib; ib s -")
_LIST_START: Final = _link(
    "- ( m; m b mb; mb b mbb; mbb t m+; m+ b mb; m+ e -; - b b; b b bb; bb t bbt; bbt a -"
)
_ACTIONS: Final = {
    _MARK: "(", 0x86: "t", ord("u"): "u", ord("s"): "s", ord("e"): "e", ord("a"): "a"
}  # fmt: skip


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain data and looks up no global; the scanner has refused pickles that need one."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise UnsafePickleError(f"the pickle asks for {module_name}.{global_name!s:.60}; {_REMEDY}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise UnsafePickleError(f"the pickle asks for a persistent object; {_REMEDY}")


def parse_plain_pickle(data: bytes) -> PlainObject:
    """Parse a pickle of a `dict[int, bytes]` or a `list[tuple[bytes, bytes]]`, of a file with at
    most `MAX_PICKLE_BYTES`.

    Nothing else is ever built, imported or called, and a refusal uses no more memory than `data`.

    Raises:
        UnsafePickleError: an opcode or a structure that such a pickle never has.
        FormatError: the data is truncated, or continues after the end.
    """
    try:
        n_items = _scan(data)
    except IndexError:
        raise FormatError(f"the pickle is cut short at byte {len(data)}") from None
    try:
        value: PlainObject = _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError) as error:
        raise UnsafePickleError(f"the pickle cannot be read: {error!s:.100}; {_REMEDY}") from None
    if len(value) != n_items:
        raise FormatError("the pickle gives one id two tokens")
    return value


def _scan(data: bytes) -> int:
    """Check `data` opcode by opcode; returns the number of items of its dict or list.

    A single long loop, because it runs a million times for a large vocabulary. Raises IndexError
    if the data ends too early.
    """
    position, state = _scan_head(data)
    size = len(data)
    memo = bytearray()  # the type of each memo entry: b bytes, t tuple, c the container
    last = ord("c")  # the last pushed type if it can be memoized; 0 for none
    n_items = 0
    while True:
        opcode = data[position]
        word = ""
        if opcode == _SHORT_BINBYTES:
            word, last, width = "b", 98, 2 + data[position + 1]
        elif opcode == _MEMOIZE:
            if not last:
                _refuse(data, position)
            memo.append(last)
            last, width = 0, 1
        elif opcode in (_BINGET, _LONG_BINGET):
            width = 2 if opcode == _BINGET else 5
            index = int.from_bytes(data[position + 1 : position + width], "little")
            if index >= len(memo) or memo[index] != 98:
                _refuse(data, position)
            word, last = "b", 0
        elif opcode in _ACTIONS:
            word, width = _ACTIONS[opcode], 1
            last = 116 if word == "t" else 0
        elif opcode in (_BININT1, _BININT2, _BININT):
            width = {_BININT1: 2, _BININT2: 3, _BININT: 5}[opcode]
            value = int.from_bytes(data[position + 1 : position + width], "little")
            # Negative ints look like large ones here, so this check refuses them too.
            if value > MAX_TOKEN_ID:
                raise FormatError(f"byte {position}: a token id is not in 0..{MAX_TOKEN_ID}")
            word, last = "i", 0
        elif opcode in (_BINPUT, _LONG_BINPUT):
            width = 2 if opcode == _BINPUT else 5
            index = int.from_bytes(data[position + 1 : position + width], "little")
            if not last or index != len(memo):
                _refuse(data, position)
            memo.append(last)
            last = 0
        elif opcode == _BINBYTES:
            width = 5 + int.from_bytes(data[position + 1 : position + 5], "little")
            word, last = "b", 98
        elif opcode == _FRAME:
            width = _check_frame(data, position)
        elif opcode == _STOP and "(" in state:
            break
        else:
            _refuse(data, position)
        position += width  # beyond the end, the next access raises IndexError
        if word:
            following = state.get(word)
            if following is None:
                _refuse(data, position - width)
            state = following
            n_items += word == "t" or word == "i"
            if n_items > MAX_ITEMS:
                raise FormatError(f"the pickle holds more than {MAX_ITEMS} items")
    if position + 1 != size:
        raise FormatError(f"{size - position - 1} bytes stand after the end of the pickle")
    return n_items


def _scan_head(data: bytes) -> tuple[int, _State]:
    """The position after the container's opcode, and the start state of its grammar."""
    if data[0] != _PROTO or data[1] < 3:
        raise UnsafePickleError(
            f"this is no pickle of protocol 3, 4 or 5, and older ones cannot hold bytes without "
            f"code; {_REMEDY}"
        )
    if data[1] > 5:
        raise UnsafePickleError(f"pickle protocol {data[1]} is not known here; {_REMEDY}")
    position = 2
    if data[position] == _FRAME:
        position += _check_frame(data, position)
    if data[position] == ord("}"):
        return position + 1, _DICT_START
    if data[position] == ord("]"):
        return position + 1, _LIST_START
    raise UnsafePickleError(f"the pickle does not start with a dict or a list; {_REMEDY}")


def _check_frame(data: bytes, position: int) -> int:
    """The width of the FRAME opcode at `position`; the frame must fit and not be empty."""
    length = int.from_bytes(data[position + 1 : position + 9], "little")
    following = position + 9
    if length > len(data) - following:
        raise IndexError
    if data[following] == _FRAME:
        _refuse(data, following)
    return 9


def _refuse(data: bytes, position: int) -> NoReturn:
    import pickletools

    names = {opcode.code: opcode.name for opcode in pickletools.opcodes}
    name = names.get(chr(data[position]), f"0x{data[position]:02x}")
    raise UnsafePickleError(
        f"the opcode {name} at byte {position} has no place in the pickle of a plain "
        f"dict[int, bytes] or list[tuple[bytes, bytes]]; {_REMEDY}"
    )


def render_pickle(value: Mapping[int, bytes] | Sequence[tuple[bytes, bytes]]) -> bytes:
    """A protocol 4 pickle of a vocabulary (by ascending id) or of merges; equal values give equal
    bytes.

    `pickle.dumps` writes a back-reference where two values are the same object, so equal
    vocabularies can give different files. This function writes none; `pickle.load` reads both.
    """
    if isinstance(value, Mapping):
        items = [_render_int(id_) + _render_bytes(value[id_]) for id_ in sorted(value)]
        opening, closing = b"}", b"u"
    else:
        items = [_render_bytes(left) + _render_bytes(right) + b"\x86" for left, right in value]
        opening, closing = b"]", b"e"
    parts = [b"\x80\x04", opening]
    for start in range(0, len(items), _BATCH):
        parts += [b"(", *items[start : start + _BATCH], closing]
    return b"".join([*parts, b"."])


def _render_int(value: int) -> bytes:
    if value < 256:
        return bytes([_BININT1, value])
    if value < 65536:
        return bytes([_BININT2]) + value.to_bytes(2, "little")
    return bytes([_BININT]) + value.to_bytes(4, "little")


def _render_bytes(value: bytes) -> bytes:
    if len(value) < 256:
        return bytes([_SHORT_BINBYTES, len(value)]) + value
    return bytes([_BINBYTES]) + len(value).to_bytes(4, "little") + value


def load_pickles(
    vocab_path: str | os.PathLike[str],
    merges_path: str | os.PathLike[str],
    *,
    declared_gaps: Iterable[tuple[int, int]] = (),
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The vocabulary and merges of two pickles, as the course and the trainer write them.

    Ids must run from 0 without gaps, except for `declared_gaps` (the first and last id of each): a
    manifest can declare a gap, a bare pickle cannot. Raises FormatError: as `parse_plain_pickle`,
    or the two files are swapped, or a gap is undeclared.
    """
    vocab = parse_plain_pickle(read_whole_file(vocab_path, max_bytes=MAX_PICKLE_BYTES))
    merges = parse_plain_pickle(read_whole_file(merges_path, max_bytes=MAX_PICKLE_BYTES))
    if not isinstance(vocab, dict):
        raise FormatError("the vocabulary must be a pickled dict[int, bytes], this is a list")
    if not isinstance(merges, list):
        raise FormatError("the merges must be a pickled list of pairs of bytes, this is a dict")
    check_gaps(vocab, declared_gaps)
    # Share one object per token: the merges name each token several times.
    known = {token: token for token in vocab.values()}
    return vocab, [(known.get(left, left), known.get(right, right)) for left, right in merges]


def check_gaps(vocab: Mapping[int, bytes], declared_gaps: Iterable[tuple[int, int]]) -> None:
    """Refuse undeclared gaps in the ids, and declared gaps that do not exist."""
    found = gaps_in(vocab)
    declared = sorted(tuple(gap) for gap in declared_gaps)
    for gap in found:
        if gap not in declared:
            raise FormatError(
                f"ids {gap[0]} to {gap[1]} have no token and no manifest declares this gap; "
                f"the file is damaged, or not from here"
            )
    if declared != found:
        missing = next(gap for gap in declared if gap not in found)
        raise FormatError(f"the manifest declares the gap {missing}, which is not there")


def render_pickles(spec: TokenizerSpec) -> tuple[bytes, bytes]:
    """`spec` as two bare pickles, which `Tokenizer.from_files` reads; equal values give equal
    files. They do not record which tokens are special: pass those again when loading. Raises
    FormatError: ids depend on what bare pickles cannot record: another split pattern than gpt2, a
    normalizer, `ignore_merges`, missing bytes, ranks with tokens that no merge makes, gaps, a
    special token that is spelt like another token. Publish an artifact instead. Or a file would be
    too large to be read."""
    files = render_pickle(spec.vocab), render_pickle(_check_bare(spec))
    for data in files:
        check_size(data, MAX_PICKLE_BYTES, "the pickle of the vocabulary or the merges")
    return files


def _check_bare(spec: TokenizerSpec) -> Sequence[tuple[bytes, bytes]]:
    """Refuse what bare pickles cannot record; returns the merges."""
    if spec.pattern.name != "gpt2":
        raise FormatError(
            f"bare pickles mean the split pattern gpt2, and this tokenizer has "
            f"{spec.pattern.name}: loaded again it would give other ids. Publish the tokenizer as "
            f"an artifact, or save a tokenizer.json"
        )
    if spec.ignore_merges:
        raise FormatError(
            "bare pickles cannot say that whole pre-tokens are looked up before merging; publish "
            "the tokenizer as an artifact, or save a tokenizer.json"
        )
    check_is_plain(spec, "bare pickles")
    check_one_name_an_id(spec, "a bare pickle")
    learned = spec.token_to_id
    for token in spec.added_tokens:
        if learned.get(token.content.encode(), token.id) != token.id:
            raise FormatError(
                f"the special token {token.content!r:.60} (id {token.id}) is spelt like the token "
                f"of id {learned[token.content.encode()]}, and bare pickles cannot say which one "
                f"is meant; publish the tokenizer as an artifact"
            )
    merges = recover_merges(learned) if spec.kind == "ranks" else spec.merges
    if spec.gaps():
        raise FormatError(
            "these ids have gaps, which bare pickles cannot declare; publish the tokenizer as an "
            "artifact, or save a tokenizer.json"
        )
    return merges
