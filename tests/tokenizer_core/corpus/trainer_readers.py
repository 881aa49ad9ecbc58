"""Readers of token files, written from the trainers' own rules; they share no code with the
package.

Each gives the shards of `train` or `val` in the trainer's order, which is that of their sorted
names.
"""

import itertools
import struct

import numpy as np
from pyarrow import parquet


def read_raw(folder, stem, wide):
    """nanoGPT: `np.memmap(os.path.join(data_dir, 'train.bin'), dtype=np.uint16, mode='r')`."""
    dtype = np.uint32 if wide else np.uint16
    return [np.memmap(path, dtype=dtype, mode="r") for path in sorted(folder.glob(f"{stem}*.bin"))]


def read_npy(folder, stem, wide):
    found = [np.load(path, mmap_mode="r") for path in sorted(folder.glob(f"{stem}*.npy"))]
    assert all(isinstance(array, np.memmap) for array in found)
    assert all(array.dtype == (np.uint32 if wide else np.uint16) for array in found)
    return found


def read_llmc(folder, stem, wide):
    """llm.c: `_load_data_shard` of train_gpt2.py and of train_llama3.py."""
    found = []
    for path in sorted(folder.glob(f"{stem}_*.bin")):
        with path.open("rb") as file:
            header = np.frombuffer(file.read(256 * 4), dtype=np.int32)
            assert header[0] == (20240801 if wide else 20240520)
            assert header[1] == (7 if wide else 1)
            tokens = np.frombuffer(file.read(), dtype=np.uint32 if wide else np.uint16)
        assert len(tokens) == header[2] > 0
        assert not header[3:].any()
        found.append(tokens)
    return found


def read_megatron_documents(folder, stem, wide):
    """Megatron: `_IndexReader` and `IndexedDataset.__getitem__`; the documents of each shard."""
    found = []
    for path in sorted(folder.glob(f"{stem}*.idx")):
        data = path.read_bytes()
        assert data[:9] == b"MMIDIDX\x00\x00"
        (version,) = struct.unpack_from("<Q", data, 9)
        (code,) = struct.unpack_from("<B", data, 17)
        n_sequences, n_indices = struct.unpack_from("<QQ", data, 18)
        assert (version, code) == (1, 4 if wide else 8)
        place = 34
        lengths = np.frombuffer(data, np.int32, n_sequences, place)
        pointers = np.frombuffer(data, np.int64, n_sequences, place + lengths.nbytes)
        place += lengths.nbytes + pointers.nbytes
        indices = np.frombuffer(data, np.int64, n_indices, place)
        assert place + indices.nbytes == len(data)
        # The checks of IndexedDataset, and that a document is one sequence.
        assert lengths.shape[0] == indices[-1]
        assert indices.tolist() == list(range(n_sequences + 1))
        ids = np.memmap(path.with_suffix(".bin"), mode="r")
        dtype = np.int32 if wide else np.uint16
        found.append(
            [
                np.frombuffer(ids, dtype, length, pointer)
                for length, pointer in zip(lengths, pointers, strict=True)
            ]
        )
        assert lengths.sum() * np.dtype(dtype).itemsize == len(ids)
    return found


def read_megatron(folder, stem, wide):
    return [np.concatenate(shard) for shard in read_megatron_documents(folder, stem, wide)]


def read_parquet_documents(folder, stem, wide):
    """The rows of each shard, whose columns agree."""
    found = []
    for path in sorted(folder.glob(f"{stem}*.parquet")):
        table = parquet.read_table(path)
        types = [f"list<element: {kind}>" for kind in ("int32", "int8", "int32")]
        assert list(map(str, table.schema.types)) == types
        rows = table.to_pydict()
        mask = path.with_suffix(".loss-mask.u8")
        bits = iter(np.fromfile(mask, np.uint8)) if mask.exists() else itertools.repeat(1)
        for ids, attention, labels in zip(*rows.values(), strict=True):
            assert labels == [id_ if next(bits) else -100 for id_ in ids]
            assert attention == [1] * len(ids)
        found.append([np.array(ids) for ids in rows["input_ids"]])
    return found


def read_parquet(folder, stem, wide):
    return [np.concatenate(shard) for shard in read_parquet_documents(folder, stem, wide)]


DOCUMENT_READERS = {"megatron": read_megatron_documents, "parquet": read_parquet_documents}
READERS = {
    "raw": read_raw,
    "npy": read_npy,
    "llmc": read_llmc,
    "megatron": read_megatron,
    "parquet": read_parquet,
}
