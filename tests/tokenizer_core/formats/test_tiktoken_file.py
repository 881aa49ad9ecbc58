"""`.tiktoken` files, and ranks as merges: compared with tiktoken and with the definition of BPE."""

import random

import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.formats.small_specs import (
    BYTES,
    TRAINING_TEXT,
    trained_spec,
    wild_ranks,
    wild_texts,
)
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import tiktoken_file
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.tiktoken_file import (
    load_tiktoken_ranks,
    parse_tiktoken_ranks,
    recover_merges,
    recover_reachable_merges,
    render_tiktoken,
)
from tokenizer_core.reference import apply_merges, apply_ranks
from tokenizer_core.spec import TokenizerSpec

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


@pytest.fixture(params=["compiled", "python"])
def way(request, monkeypatch):
    """Both ways to find last merges; without the compiled module they are one."""
    if request.param == "python":
        monkeypatch.setattr(tiktoken_file, "left_sizes", lambda tokens: None)


def test_one_pair_a_token_gives_the_ids_of_any_ranks(way):
    unreached = late_parts = 0
    for seed in range(10):
        alphabet = "ab" if seed % 2 else "abc"
        ranks = wild_ranks(seed, alphabet=alphabet.encode())
        merges, missing = recover_reachable_merges(ranks)
        assert {a + b for a, b in merges} | set(missing) == {t for t in ranks if len(t) > 1}
        for text in wild_texts(seed, alphabet=alphabet):
            word = text.encode()
            assert word in ranks or apply_merges(word, merges) == apply_ranks(word, ranks), word
        unreached += len(missing)
        late_parts += sum(max(ranks[a], ranks[b]) > ranks[a + b] for a, b in merges)
    # The ranks are wild: some tokens are unreached, some parts rank after their product.
    assert unreached > 20
    assert late_parts > 20


def test_both_ways_to_find_last_merges_agree(monkeypatch):
    """Also for tokens of more than one window of the engine, and where a byte is no token."""
    ranks = wild_ranks(0, n_tokens=100)
    for doublings in range(1, 18):
        ranks.setdefault(b"~" * 2**doublings, len(ranks))
    ranks.setdefault(next(iter(ranks)) * 3000, len(ranks))
    del ranks[b"!"]
    merges, unreached = recover_reachable_merges(ranks)
    monkeypatch.setattr(tiktoken_file, "left_sizes", lambda tokens: None)
    assert (merges, unreached) == recover_reachable_merges(ranks)
    assert (b"~" * 2**16, b"~" * 2**16) in merges
    assert unreached
    with pytest.raises(FormatError, match=rf"{len(unreached)} tokens .* \(rank \d+\)"):
        recover_merges(ranks)


def test_a_very_long_token_takes_no_quadratic_time(way):
    ranks = {token: id_ for id_, token in BYTES.items()}
    for size in (2, 4, 8, 16, 32):
        ranks[b"a" * size] = len(ranks)
    ranks[b"a" * 50_001] = len(ranks)
    assert recover_reachable_merges(ranks)[1] == [b"a" * 50_001]


def in_tiktoken(ranks, special_tokens):
    return tiktoken.Encoding(
        "x", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens=special_tokens
    )


RANKED = [TokenizerSpec.from_ranks(wild_ranks(i), {"<|x|>": 999}, pattern="gpt2") for i in (0, 1)]


@pytest.mark.parametrize("spec", [*RANKED, trained_spec()], ids=range(3))
def test_a_saved_file_gives_the_ids_of_tiktoken(spec, tmp_path, monkeypatch):
    write_files("tiktoken", spec, tmp_path / "x.tiktoken")
    ranks = load_tiktoken_bpe(str(tmp_path / "x.tiktoken"))
    assert load_tiktoken_ranks(tmp_path / "x.tiktoken") == ranks
    assert ranks == {spec.vocab[id_]: id_ for id_ in range(len(ranks))}
    theirs, ours = in_tiktoken(ranks, spec.special_tokens), Tokenizer.from_spec(spec)
    for text in [TRAINING_TEXT, *wild_texts(1), *adversarial_texts()]:
        assert theirs.encode(text, allowed_special="all") == ours.encode(text)
    size = (tmp_path / "x.tiktoken").stat().st_size
    monkeypatch.setattr(tiktoken_file, "MAX_FILE_BYTES", size - 1)
    with pytest.raises(FormatError, match=f"larger than {size - 1} bytes"):
        load_tiktoken_ranks(tmp_path / "x.tiktoken")


def merges_spec(merges, order=None, **fields):
    order = order or [a + b for a, b in merges]
    vocab = BYTES | {256 + i: token for i, token in enumerate(order)}
    return TokenizerSpec.from_merges(vocab, merges, **fields)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        # ids not in the order of the merges
        (merges_spec([(b"a", b"b"), (b"c", b"d")], [b"cd", b"ab"]), "number 0 of those that apply"),
        # a token that merges cannot reach would be matched by ranks
        (merges_spec([(b"a", b"b")], [b"ab", b"xyz"]), "not made by the merges"),
        # another pair would make abc: the ranks say (ab, c), the list says (a, bc)
        (merges_spec([(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]), "number 2 of those that apply"),
    ],
)
def test_merges_that_ranks_do_not_reproduce_are_refused(spec, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        write_files("tiktoken", spec, tmp_path / "x.tiktoken")
    assert list(tmp_path.iterdir()) == []
    # Whole pre-tokens are looked up anyway.
    looked_up = merges_spec([(b"a", b"b")], [b"ab", b"xyz"], ignore_merges=True)
    assert parse_tiktoken_ranks(render_tiktoken(looked_up))[b"xyz"] == 257


@pytest.mark.parametrize("seed", range(2))
def test_merges_that_never_apply_may_stand_anywhere(seed):
    """Half of the merges in Llama 3's file never apply; shown on ranks no trainer would produce."""
    rng = random.Random(seed)
    ranks = wild_ranks(seed, alphabet=b"ab" if seed % 2 else b"abc")
    applying, _ = recover_reachable_merges(ranks)
    parts = [(token[:at], token[at:]) for token in ranks for at in range(1, len(token))]
    merges = [pair for pair in parts if set(pair) <= ranks.keys() and pair not in applying]
    rng.shuffle(merges)
    places = sorted(rng.sample(range(len(applying) + len(merges)), len(applying)))
    for place, merge in zip(places, applying, strict=True):
        merges.insert(place, merge)
    vocab = {rank: token for token, rank in ranks.items()}
    spec = TokenizerSpec.from_merges(vocab, merges, ignore_merges=True)
    assert len(spec.merges) > len(applying)
    assert parse_tiktoken_ranks(render_tiktoken(spec)) == ranks
    ours, theirs = Tokenizer.from_spec(spec), in_tiktoken(ranks, {})
    for text in [*wild_texts(seed, alphabet="ab" if seed % 2 else "abc "), *adversarial_texts()]:
        assert ours.encode(text) == theirs.encode(text), text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"IQ== 0\nIQ== 1", "line 2 .* token b'!' a second time"),
        (b"IQ== 0\nIg== 0", "line 2 .* rank 0 a second time"),
        (b"IQ==", "line 1"),
        (b"IQ== -1", "line 1"),
        (b"IQ== 1048576", "line 1"),
        (b"IQ== " + b"9" * 10_000, "line 1"),
        (b"IQ== \xd9\xa3", "line 1"),
        (b"IQ 0", "no base64"),
        (b"= 0\n= 1", "line 2 .* token b'' a second time"),
        (b"", "empty"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(line, message):
    with pytest.raises(FormatError, match=message):
        parse_tiktoken_ranks(line)


def test_an_empty_token_is_written_as_whisper_does():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"": 256, b"ab": 257}
    spec = TokenizerSpec.from_ranks(ranks, {"<|x|>": 300}, pattern="gpt2")
    data = render_tiktoken(spec)
    assert data.endswith(b"= 256\nYWI= 257\n")
    assert parse_tiktoken_ranks(data) == ranks
    merges = TokenizerSpec.from_merges({i: t for t, i in ranks.items()}, [(b"a", b"b")])
    assert render_tiktoken(merges) == data
    twice = TokenizerSpec.from_merges({**merges.vocab, 400: b""}, [(b"a", b"b")])
    with pytest.raises(FormatError, match="ids 256 and 400 stand for the same bytes b''"):
        render_tiktoken(twice)
