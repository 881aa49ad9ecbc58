"""Random files, held against `tokenizers`: equal ids, offsets and text, or a refusal by name."""

import json
from typing import Any

import tokenizers
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.formats.normalizer_files import file_of
from tests.tokenizer_core.formats.random_files import files, texts, with_tokens
from tests.tokenizer_core.formats.small_specs import ENGINES, check_round_trips
from tests.tokenizer_core.formats.test_tokenizer_json_metaspace import table_of
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json
from tokenizer_core.text.round_trips import check_text

FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def both(table: dict[str, Any]) -> tuple[tokenizers.Tokenizer, list[Tokenizer]]:
    """Hugging Face's tokenizer and ours; no example if this one is refused."""
    data = json.dumps(table).encode()
    try:
        spec = parse_tokenizer_json(data)
    except (FormatError, InvalidSpecError):
        assume(False)
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    return theirs, [Tokenizer.from_spec(spec, engine=name) for name in ENGINES]


def token(content: str, *flags: str) -> dict[str, Any]:
    return {"content": content, "special": True, **{name: name in flags for name in FLAGS}}


LOWER = with_tokens(
    json.loads(file_of({"type": "Lowercase"}, [])),
    [token("<É>", "normalized", "rstrip"), token("<s>", "lstrip"), token("X", "single_word")],
)
PREPENDED = with_tokens(table_of("metaspace-prepend"), [token("<a b>", "normalized")])


@given(table=files, text=texts)
@example(table=LOWER, text="a <É> b <s> <é>\n<S> X xX")
@example(table=PREPENDED, text="<a b>a <a b> b<s> <a▁b>")
def test_ids_offsets_and_text(table, text):
    theirs, ours = both(table)
    expected = theirs.encode(text, add_special_tokens=False)
    for tokenizer in ours:
        assert tokenizer.encode(text) == expected.ids
        assert tokenizer.count(text) == len(expected.ids)
        assert tokenizer.encode_batch(["", text], num_threads=2)[1] == expected.ids
        assert json.loads(tokenizer.encode_to_json(text)[0]) == expected.ids
        ids, offsets = tokenizer.encode_with_offsets(text, unit="char")
        assert ids == expected.ids
        # With NFC alone, a token covers all characters that were composed.
        if tokenizer.spec.normalizer != "nfc":
            assert list(map(tuple, offsets.tolist())) == expected.offsets
        assert check_text(tokenizer, text).first_difference is None
    if not any(is_in_alphabet(theirs.id_to_token(added["id"])) for added in table["added_tokens"]):
        decoded = theirs.decode(expected.ids, skip_special_tokens=False)
        assert tokenizer.decode(expected.ids) == decoded


def is_in_alphabet(content: str) -> bool:
    """Whether `tokenizers` may decode such a token as bytes, which are not those of its text."""
    return any("\x7f" < character < "\u0144" for character in content)


@given(table=files, text=texts, cuts=st.lists(st.integers(0, 5), max_size=6))
@example(table=LOWER, text="a <É> b <s> <é>\n<S> X xX", cuts=[3, 2, 1, 4])
@example(table=PREPENDED, text="<a b>a <a b> b<s> <a▁b>", cuts=[3, 2, 1, 4])
def test_streams(table, text, cuts):
    _, (tokenizer, *_) = both(table)
    _, offsets = tokenizer.encode_with_offsets(text)
    stream, found, rest = StreamingEncoder(tokenizer), [], text
    for size in [*cuts, len(text)]:
        found += stream.feed(rest[:size])
        rest = rest[size:]
        assert stream.bytes_settled <= offsets[len(found) :, 0].min(initial=len(text.encode()))
    assert found + stream.finish() == tokenizer.encode(text)
    assert stream.bytes_settled == len(text.encode())


@given(table=files, text=texts)
@example(table=LOWER, text="<É> <é>")
@example(table=PREPENDED, text="<a b> <a▁b>")
def test_written_files(table, text):
    theirs, (tokenizer, *_) = both(table)
    try:
        data = check_round_trips(tokenizer.spec)
    except FormatError:
        assume(False)
    again = tokenizers.Tokenizer.from_str(data.decode())
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert again.encode(text, add_special_tokens=False).ids == expected


@given(table=files, text=texts, is_trusted=st.booleans(), size=st.integers(0, 20))
@examples(1 / 2)
def test_engines_agree_on_segments(table, text, is_trusted, size):
    _, ours = both(table)
    segments = [(text[:size], is_trusted), (text[size:], not is_trusted)]
    found = []
    for tokenizer in ours:
        try:
            found.append(tokenizer.encode_segments(segments))
        except Exception as error:
            found.append([type(error)])
    assert found[1:] == found[:-1]
    whole = [(text[:size], True), (text[size:], True)]
    assert ours[0].encode_segments(whole) == ours[0].encode(text)
