"""WordPiece and Unigram by the library `tokenizers`: its ids, in the shapes of the files that
embedding models have."""

import json
import pickle
import random
import sys
from inspect import isfunction, signature

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tokenizer_core import Tokenizer, chunk_text, truncate_text
from tokenizer_core.compat.other_models import LibraryTokenizer
from tokenizer_core.errors import FormatError, OtherModelError, UnknownTokenIdError

tokenizers = pytest.importorskip("tokenizers")
models, trainers = tokenizers.models, tokenizers.trainers
normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers

TEXT = (REPOSITORY / "README.md").read_text("utf-8")
PROBES = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces\n\nand lines\t",
    "Ünïcode CAFÉ naïve é ﬁ",
    "東京 ゐ 한국어 中文字",
    "👩‍👩‍👧 zero\u200bwidth \x00 \ufffd",
    "[CLS] typed [SEP] <s> </s> <mask> <pad>",
    "a" * 200,
]


def trained(library, trainer, before, after):
    """A library tokenizer that pads and truncates, as MiniLM's file asks for."""
    library.train_from_iterator(TEXT.splitlines(), trainer)
    ids = [(token, library.token_to_id(token)) for token in (before, after)]
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{before} $A {after}", special_tokens=ids
    )
    library.enable_truncation(8)
    library.enable_padding(length=8)
    return library


def word_piece():
    """MiniLM, BGE."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = tokenizers.decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    return trained(library, trainer, "[CLS]", "[SEP]")


def unigram():
    """Multilingual E5, bge-m3."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(tokenizers.Regex(" {2,}"), "▁"),
        ]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = tokenizers.decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    return trained(library, trainer, "<s>", "</s>")


@pytest.fixture(
    params=[
        word_piece,
        unigram,
        pytest.param("refused_bert", marks=pytest.mark.shared_data),
        pytest.param("refused_xlnet", marks=pytest.mark.shared_data),
    ]
)
def library(request):
    if callable(request.param):
        return request.param()
    folder = request.getfixturevalue("shared_data")
    return tokenizers.Tokenizer.from_file(
        str(folder / "vocab_open" / f"{request.param}.tokenizer.json")
    )


@pytest.fixture
def path(library, tmp_path):
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def whole(library, *, plain=False):
    """The library without the truncation and padding of its file."""
    copied = tokenizers.Tokenizer.from_str(library.to_str())
    copied.no_truncation()
    copied.no_padding()
    copied.encode_special_tokens = plain
    return copied


def test_ids_offsets_and_text_are_those_of_the_library(library, path):
    tokenizer, expected = Tokenizer.load(path), whole(library)
    for text in [*PROBES, TEXT]:
        encoded = expected.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == encoded.ids
        assert tokenizer.encode_to_numpy(text).tolist() == encoded.ids
        assert tokenizer.count(text) == len(encoded.ids)
        with_special = expected.encode(text).ids
        for encode in (
            tokenizer.encode,
            lambda text, **options: tokenizer.encode_batch([text], **options)[0],
            lambda text, **options: tokenizer.encode_with_offsets(text, **options)[0],
        ):
            assert encode(text, add_special_tokens=True) == with_special
        assert tokenizer.count(text, add_special_tokens=True) == len(with_special)
        plain = whole(library, plain=True).encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, allowed_special="none") == plain
        for skips in (False, True):
            decoded = expected.decode(with_special, skip_special_tokens=skips)
            assert tokenizer.decode(with_special, skip_special_tokens=skips) == decoded
        ids, spans = tokenizer.encode_with_offsets(text, unit="char")
        assert (ids, list(map(tuple, spans.tolist()))) == (encoded.ids, encoded.offsets)
        in_bytes = tokenizer.encode_with_offsets(text)[1].tolist()
        data = text.encode()
        assert [data[a:b].decode() for a, b in in_bytes] == [text[a:b] for a, b in encoded.offsets]
    assert tokenizer.encode_batch(PROBES) == list(map(tokenizer.encode, PROBES))
    assert tokenizer.vocab_size == len(tokenizer) == library.get_vocab_size() == tokenizer.n_vocab
    assert set(tokenizer.special_tokens) == {
        token.content for token in library.get_added_tokens_decoder().values()
    }
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer


def test_parts_of_a_text_fit_and_lose_nothing(path):
    tokenizer, rng = Tokenizer.load(path), random.Random(1)
    for _ in range(60):
        at = rng.randrange(len(TEXT) - 300)
        text, n = TEXT[at : at + rng.randrange(300)] + rng.choice(PROBES[:-1]), rng.randrange(3, 40)
        for side in ("left", "right"):
            part = truncate_text(tokenizer, text, n, side=side)
            assert part.ids.tolist() == tokenizer.encode(part.text)
            assert len(part.ids) <= n
            assert text.endswith(part.text) if side == "left" else text.startswith(part.text)
        chunks = list(chunk_text(tokenizer, text, n))
        assert "".join(chunk.text for chunk in chunks) == text
        assert max((len(chunk.ids) for chunk in chunks), default=0) <= n


def test_other_methods_and_options_are_refused_by_name(path):
    tokenizer = Tokenizer.load(path)
    assert isinstance(tokenizer, LibraryTokenizer)
    for name, method in vars(LibraryTokenizer).items():
        if isfunction(method) and not name.startswith("_"):
            assert signature(method) == signature(vars(Tokenizer)[name]), name
    for call in (
        lambda: tokenizer.spec,
        lambda: list(tokenizer.encode_iterable(["a"])),
        lambda: tokenizer.decode_bytes([1]),
        lambda: tokenizer.control_tokens,
        lambda: tokenizer.save("x.json"),
    ):
        with pytest.raises(OtherModelError, match="run by the library tokenizers"):
            call()
    for options in ({"allowed_special": ["<s>"]}, {"disallowed_special": "all"}):
        for encode in (tokenizer.encode, tokenizer.count, tokenizer.encode_with_offsets):
            with pytest.raises(ValueError, match="allowed_special 'all' or 'none'"):
                encode("a", **options)
    with pytest.raises(TypeError, match="list of strings"):
        tokenizer.encode_batch("abc")
    for wrong in ([1.0], [True], 5, "1 2", np.array([1.5])):
        with pytest.raises(TypeError, match="integers"):
            tokenizer.decode(wrong)
    with pytest.raises(TypeError, match=r"row 1: .*bool"):
        tokenizer.decode_batch([[1], [True]])
    assert tokenizer != Tokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\]"):
        tokenizer.decode(np.array([1, tokenizer.n_vocab]))
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode_batch(["ok", "\ud800"])


def test_a_text_on_which_the_library_fails_is_an_error_of_ours(tmp_path):
    words = models.WordLevel({"a": 0}, unk_token="[UNK]")  # which the vocabulary lacks
    tokenizers.Tokenizer(words).save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.encode("a") == [0]
    for encode in (tokenizer.encode, tokenizer.count, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(OtherModelError, match=r"cannot encode the text: .*\[UNK\]"):
            encode("b")


def test_a_folder_a_broken_file_and_a_missing_library_are_refused(path, monkeypatch):
    with pytest.raises(OtherModelError, match="name the file itself"):
        Tokenizer.load(path.parent)
    table = json.loads(path.read_text("utf-8"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(OtherModelError, match=r"pip install 'tokenizer-service\[tokenizers\]'"):
        Tokenizer.load(path)
    monkeypatch.undo()
    table["normalizer"] = {"type": "NoSuchStep"}
    path.write_text(json.dumps(table), "utf-8")
    with pytest.raises(FormatError, match="the library tokenizers cannot read it"):
        Tokenizer.load(path)
