"""Layouts: headers written by hand, and memory maps that check every figure."""

import struct

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES
from tokenizer_core.corpus import LAYOUTS, token_layouts
from tokenizer_core.corpus.token_layouts import find_layout
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError


def test_the_names_of_the_layouts():
    assert list(LAYOUTS) == LAYOUT_NAMES
    assert [name for name in LAYOUTS if LAYOUTS[name].has_index] == ["megatron"]
    with pytest.raises(TokenFilesPlanError, match="no layout is named 'xyz'"):
        find_layout("xyz")


def test_widths_on_the_disk():
    for layout in LAYOUTS.values():
        assert layout.disk_dtype("uint16") == np.dtype("<u2")
        assert layout.disk_dtype("uint32").itemsize == 4
    assert LAYOUTS["megatron"].disk_dtype("uint32") == np.dtype("<i4")


@pytest.mark.parametrize(
    ("dtype", "magic", "version"), [("<u2", 20240520, 1), ("<u4", 20240801, 7)]
)
def test_the_header_of_llmc(dtype, magic, version):
    header = LAYOUTS["llmc"].render_header(1_000_000, np.dtype(dtype))
    assert header == struct.pack("<3i", magic, version, 1_000_000) + bytes(253 * 4)


@pytest.mark.parametrize("n_tokens", [1, 2, 10**9, 10**15])
def test_the_header_of_npy_has_one_length(n_tokens):
    header = LAYOUTS["npy"].render_header(n_tokens, np.dtype("<u2"))
    assert len(header) == 128


def test_a_numpy_with_other_headers_is_refused(monkeypatch):
    monkeypatch.setattr(token_layouts, "_NPY_HEADER_BYTES", 80)
    with pytest.raises(TokenFilesPlanError, match="headers of 128 bytes, not 80; install"):
        LAYOUTS["npy"].render_header(1, np.dtype("<u2"))


@pytest.mark.parametrize("name", ["raw", "npy", "llmc"])
def test_a_shard_that_is_too_short_or_has_another_header(name, tmp_path):
    layout, path = LAYOUTS[name], tmp_path / f"a{LAYOUTS[name].suffix}"
    data = layout.render_header(3, np.dtype("<u2")) + np.arange(3, dtype="<u2").tobytes()
    path.write_bytes(data)
    assert layout.map_shard(path, "uint16", 3).tolist() == [0, 1, 2]
    path.write_bytes(data[:-1])
    with pytest.raises(TokenFilesCorruptError, match="fewer than 3 ids"):
        layout.map_shard(path, "uint16", 3)
    if name != "raw":
        path.write_bytes(data)
        for width, n_tokens in (("uint16", 2), ("uint32", 3)):
            with pytest.raises(TokenFilesCorruptError, match="does not begin with the header"):
                layout.map_shard(path, width, n_tokens)
