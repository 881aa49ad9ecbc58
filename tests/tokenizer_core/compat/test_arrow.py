"""Columns of text in Arrow's format."""

from dataclasses import replace

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.compat.arrow import count_column, encode_column

pa = pytest.importorskip("pyarrow")
ROWS = ["low lower", None, "", "<|endoftext|> é 東京 👩‍👩‍👧", "newest " * 50]


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_rows_are_encoded_with_their_nulls_and_chunks(kind, engine):
    tokenizer = Tokenizer.from_spec(trained_spec(), engine=engine)
    column = pa.chunked_array([ROWS, [], ROWS[3:], [None]], getattr(pa, kind)())
    expected = [None if row is None else tokenizer.encode(row) for row in column.to_pylist()]
    for given in (column, column.slice(1, 5), pa.array(ROWS, column.type).slice(2)):
        ids = encode_column(tokenizer, given, num_threads=2)
        ids.validate(full=True)
        rows = given.to_pylist()
        wanted = [None if row is None else tokenizer.encode(row) for row in rows]
        assert ids.to_pylist() == wanted
        counts = count_column(tokenizer, given).to_pylist()
        assert counts == [None if row is None else len(row) for row in wanted]
    ids = encode_column(tokenizer, column)
    assert (ids.to_pylist(), ids.num_chunks) == (expected, 4)
    plain = encode_column(tokenizer, column, allowed_special="none").to_pylist()
    assert plain[3] == tokenizer.encode(ROWS[3], allowed_special="none")
    around = Tokenizer.from_spec(replace(tokenizer.spec, prefix_ids=(5,)), engine=engine)
    counts = count_column(around, column, add_special_tokens=True).to_pylist()
    assert counts == [None if row is None else 1 + len(row) for row in expected]


def test_a_column_of_no_strings_is_refused():
    tokenizer = Tokenizer.from_spec(trained_spec())
    for column in (pa.array([1, 2]), pa.array([b"a"])):
        with pytest.raises(TypeError, match="cast it first"):
            encode_column(tokenizer, column)
    for column in (["low", "x"], "low", None):  # pyarrow takes each text of a list for a chunk
        with pytest.raises(TypeError, match=r"no Arrow array; pyarrow\.array makes one"):
            encode_column(tokenizer, column)
