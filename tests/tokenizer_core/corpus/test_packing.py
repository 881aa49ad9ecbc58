"""Documents are packed into sequences: each once, none too long, and no heuristic is beaten."""

import itertools
import os
import pickle
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import NARROW, content, write
from tokenizer_core.corpus import (
    PackManifest,
    TokenDataset,
    TokenFiles,
    pack_token_files,
    plan_token_files,
    verify_pack,
    verify_token_files,
)
from tokenizer_core.corpus.best_fit import fewest_sequences, pack_lengths
from tokenizer_core.corpus.packing import PACK_FORMAT, default_pack_folder
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenFilesPlanError


def count_decreasing(lengths, capacity, *, best):
    """The number of sequences of best-fit or first-fit decreasing, item by item."""
    spaces = []
    for length in sorted(lengths, reverse=True):
        fitting = [index for index, space in enumerate(spaces) if space >= length]
        if not fitting:
            spaces.append(capacity - length)
            continue
        chosen = min(fitting, key=lambda index: spaces[index]) if best else fitting[0]
        spaces[chosen] -= length
    return len(spaces)


@st.composite
def items_and_capacity(draw, most=60):
    capacity = draw(st.integers(1, 50))
    largest = draw(st.integers(1, capacity))
    return draw(st.lists(st.integers(1, largest), min_size=1, max_size=most)), capacity


@examples(2)
@given(items_and_capacity())
def test_each_item_is_in_one_sequence_that_is_not_too_long(drawn):
    lengths, capacity = drawn
    packed = pack_lengths(np.array(lengths), capacity)
    assert sorted(packed.items.tolist()) == list(range(len(lengths)))
    sequences = [part.tolist() for part in np.split(packed.items, packed.ends[:-1])]
    assert all(sequences)
    assert all(sum(lengths[item] for item in sequence) <= capacity for sequence in sequences)
    assert all(sequence == sorted(sequence) for sequence in sequences)
    assert [sequence[0] for sequence in sequences] == sorted(s[0] for s in sequences)
    assert len(sequences) == min(
        count_decreasing(lengths, capacity, best=True),
        count_decreasing(lengths, capacity, best=False),
    )
    bound = fewest_sequences(np.array(lengths), capacity)
    assert -(-sum(lengths) // capacity) <= bound <= len(sequences)
    again = pack_lengths(np.array(lengths), capacity)
    assert again.items.tolist() == packed.items.tolist()
    assert again.ends.tolist() == packed.ends.tolist()


FIRST_FIT_IS_BETTER = [
    *(39, 38, 37, 37, 36, 36, 34, 29, 27, 23, 22, 21, 20, 19, 19, 18, 17, 15, 14, 9, 7, 6),
    *(5, 5, 5, 4, 4),
]
"""Best fit needs one more."""


@pytest.mark.parametrize(
    ("lengths", "capacity", "bound"),
    [
        ([6, 6, 6], 10, 3),  # no two fit together
        ([5, 5, 5, 5], 10, 2),
        ([7, 7, 3, 3, 1], 10, 3),
        ([10], 10, 1),
        ([4, 4, 4], 10, 2),
        ([70_000, 1, 30_000, 99_999, 65_536, 4_464], 100_000, 3),
        (FIRST_FIT_IS_BETTER, 40, 14),
    ],
)
def test_the_bound_is_the_least_number_of_sequences(lengths, capacity, bound):
    assert fewest_sequences(np.array(lengths), capacity) == bound
    assert len(pack_lengths(np.array(lengths), capacity).ends) == bound


def documents_of(lengths):
    """Documents of these lengths, whose ids say which document and which place they are."""
    return [[(7 * number + place) % 256 for place in range(n)] for number, n in enumerate(lengths)]


@examples(1 / 2)
@given(data=st.data())
def test_packed_samples_are_the_documents(data, tmp_path_factory):
    lengths = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=20).filter(any))
    is_masked, splits = data.draw(st.booleans()), data.draw(st.booleans())
    length = data.draw(st.integers(1 if splits else max(lengths), 30))
    folder = tmp_path_factory.mktemp("t") / "tokens"
    documents = documents_of(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        plan = plan_token_files(NARROW, end_of_document="", tokens_per_shard=9, loss_mask=is_masked)
        write(folder, plan, documents)
        dataset = TokenDataset.open(folder)
        manifest = pack_token_files(dataset.files, length, split_documents=splits)
    packed = dataset.packed(length)
    found = []
    for sample in packed:
        ends = sample["cu_seqlens"]
        assert ends.dtype == np.int32
        ids = sample["input_ids"]
        assert 0 < len(ids) == ends[-1] <= length
        assert sample["max_seqlen"] == np.diff(ends).max()
        mask = [id_ % 3 % 2 if is_masked else 1 for id_ in ids.tolist()]
        assert sample["loss_mask"].tolist() == mask
        for first, last in itertools.pairwise(ends.tolist()):
            piece = ids[first:last].tolist()
            found.append(piece)
            assert sample["position_ids"][first:last].tolist() == list(range(len(piece)))
            labels = [
                id_ if bit else -100 for id_, bit in zip(piece, mask[first:last], strict=True)
            ]
            assert sample["labels"][first:last].tolist() == [-100, *labels[1:]]
    expected = [
        document[start : start + length]
        for document in documents
        for start in range(0, len(document), length)
    ]
    assert sorted(found) == sorted(expected)
    (split,) = manifest.splits
    assert (split.n_sequences, split.n_pieces) == (len(packed), len(expected))
    assert manifest.fill_rate("train") == sum(lengths) / (len(packed) * length)
    assert split.lower_bound <= split.n_sequences


@pytest.fixture
def dataset(tmp_path):
    lengths = [int(n) for n in np.random.default_rng(3).integers(1, 12, 60)]
    documents, validation = documents_of(lengths), documents_of([3, 4, 5])
    plan = plan_token_files(NARROW, end_of_document="")
    write(tmp_path / "t", plan, documents, validation=validation)
    pack_token_files(tmp_path / "t", 16)
    return TokenDataset.open(tmp_path / "t")


def ids_of(samples):
    return [tuple(sample["input_ids"].tolist()) for sample in samples]


def test_packing_again_gives_the_same_bytes_and_changes_nothing(dataset, tmp_path):
    before = content(tmp_path / "t")
    calls = []
    pack_token_files(dataset.files, 16, tmp_path / "p", progress=lambda *at: calls.append(at))
    folder = default_pack_folder(tmp_path / "t", 16)
    assert content(tmp_path / "p") == content(folder)
    assert content(tmp_path / "t") == before
    assert sorted(content(folder)) == [
        *("manifest.json", "train.pieces.u64", "train.sequences.u64"),
        *("val.pieces.u64", "val.sequences.u64"),
    ]
    assert calls[-1] == (126, 126)
    assert calls == sorted(calls)
    with pytest.raises(TokenFilesError, match="is there already"):
        pack_token_files(dataset.files, 16)
    assert ids_of(TokenDataset(dataset.files, "validation").packed(tmp_path / "p")) == [
        (*range(3), *range(7, 11), *range(14, 19))
    ]


def test_a_longer_document_is_refused_with_the_remedies(dataset, tmp_path):
    with pytest.raises(
        TokenFilesPlanError, match=r"more than 9 ids \(8, document \d+ the longest with 11\); "
    ) as e:
        pack_token_files(dataset.files, 9)
    assert "--split-documents" in str(e.value)
    assert "--max-length 9" in str(e.value)
    assert not list(tmp_path.glob("*9*"))
    for length in (0, 1 << 23):
        with pytest.raises(TokenFilesPlanError, match="between 1 and 4194304"):
            pack_token_files(dataset.files, length)
    with pytest.raises(TokenFilesPlanError, match="name a folder beside it"):
        pack_token_files(dataset.files, 16, dataset.files.folder / "packed")


def test_ranks_share_the_sequences_and_go_on_from_a_state(dataset):
    every = ids_of(dataset.packed(16))
    for seed in (None, 5):
        shared = [ids_of(dataset.packed(16, seed=seed, rank=r, world_size=2)) for r in (0, 1)]
        assert [len(rank) for rank in shared] == [len(every) // 2] * 2
        assert len({*shared[0], *shared[1]} & set(every)) == len(every) // 2 * 2
    samples = dataset.packed(16, seed=5)
    taken = ids_of(itertools.islice(iter(samples), 4))
    state = samples.state_dict()
    assert state == {**state, "samples_taken": 4, "epoch": 0, "split": "train", "seed": 5}
    data = pickle.dumps((dataset.packed(16, seed=5), state))
    assert len(data) < 10_000, "a copy in another process does not map the pack itself"
    other, state = pickle.loads(data)
    other.load_state_dict(state)
    assert sorted(taken + ids_of(other)) == sorted(every)
    with pytest.raises(ValueError, match="the state has seed 5"):
        dataset.packed(16).load_state_dict(state)
    with pytest.raises(ValueError, match="the state has pack"):
        dataset.packed(16).load_state_dict(dataset.samples(4).state_dict())
    with pytest.raises(TokenFilesError, match="use fewer ranks"):
        dataset.packed(16, rank=0, world_size=1000)


def test_a_pack_of_other_token_files_or_a_damaged_one_is_refused(dataset, tmp_path):
    folder = default_pack_folder(tmp_path / "t", 16)
    write(tmp_path / "other", plan_token_files(NARROW, end_of_document=""), documents_of([3, 4]))
    with pytest.raises(TokenFilesError, match="is the pack of other token files"):
        TokenDataset.open(tmp_path / "other").packed(folder)
    with pytest.raises(TokenFilesError, match=r"t.packed-17. holds no pack; make one"):
        dataset.packed(17)
    with pytest.raises(TokenFilesCorruptError, match=r"no pack can be read: .*not that of"):
        dataset.packed(tmp_path / "t")
    fields = PACK_FORMAT.parse((folder / "manifest.json").read_bytes())
    for other in ({**fields, "more": 1}, {**fields, "length": "16"}):
        with pytest.raises(TokenFilesCorruptError, match="no pack can be read: "):
            PackManifest.from_json(PACK_FORMAT.render(other))
    for name in ("train.pieces.u64", "train.sequences.u64"):
        path = folder / name
        sound = path.read_bytes()
        path.write_bytes(sound[:8] + bytes([sound[8] ^ 1]) + sound[9:])
        with pytest.raises(TokenFilesCorruptError, match=f"{name} is missing, or was changed"):
            dataset.packed(folder)
        path.unlink()
        with pytest.raises(TokenFilesCorruptError, match=f"{name} is missing, or was changed"):
            dataset.packed(folder)
        path.write_bytes(sound)
    manifest = PackManifest.from_json((folder / "manifest.json").read_bytes())
    with pytest.raises(LookupError, match="this pack has train, validation"):
        manifest.split("test")
    # Readers of token files name a pack, which is sound.
    for read in (TokenFiles.open, TokenDataset.open, verify_token_files):
        message = f"a pack of token files.*{manifest.token_files}"
        with pytest.raises(TokenFilesError, match=message) as caught:
            read(folder)
        assert not isinstance(caught.value, TokenFilesCorruptError)
    found = sha256((tmp_path / "t" / "manifest.json").read_bytes()).hexdigest()
    assert found == manifest.token_files
    assert verify_pack(folder) == (manifest, False)
    assert verify_pack(folder, [TokenFiles.open(tmp_path / "other"), dataset.files])[1]
    for among in (folder, str(folder), [dataset.files.folder]):
        with pytest.raises(TypeError, match=r"verify_pack\(pack, \[TokenFiles"):
            verify_pack(dataset.files.folder, among)
    path = folder / "train.pieces.u64"
    pieces = np.fromfile(path, "<u8")
    pieces[:2] += np.uint64(1)  # part of another document
    path.write_bytes(pieces.tobytes())
    fields["splits"][0]["pieces"]["sha256"] = sha256(pieces.tobytes()).hexdigest()
    (folder / "manifest.json").write_bytes(PACK_FORMAT.render(fields))
    assert not verify_pack(folder)[1]
    with pytest.raises(TokenFilesCorruptError, match="train are not those of the documents"):
        verify_pack(folder, [dataset.files])
    data = manifest.to_json().replace(b'"length": 16', b'"length": 17')
    (folder / "manifest.json").write_bytes(data)
    for read in (dataset.packed, verify_token_files, verify_pack):
        with pytest.raises(TokenFilesCorruptError):
            read(folder)
    with pytest.raises(TokenFilesCorruptError, match="was changed or damaged"):
        PackManifest.from_json(data)
