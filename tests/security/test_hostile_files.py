"""Hostile and broken files of tokenizers: every reader names the problem, in two seconds of
processor time and a gigabyte. A separate process reads each large file and measures itself."""

import base64
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.profiles import first_and_thorough
from tests.tokenizer_core.formats.small_specs import small_tekken, trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError, TokenizerCoreError
from tokenizer_core.formats.tokenizer_json import render_tokenizer_json

MAX_SECONDS = 2.0
"""If the machine needs UNIT_SECONDS for what READER times first; a slower one may take longer."""
UNIT_SECONDS = 0.05
MAX_EXTRA_BYTES = 1 << 30

READER = """
import json, sys, time
from pathlib import Path
def peak_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
from tokenizer_core import Tokenizer
from tokenizer_core.errors import TokenizerCoreError
from tests.security.test_hostile_files import read
def unit():
    document = b"[" + b'"token", 12345, ' * 300_000 + b"1]"
    started = time.process_time()
    json.loads(document)
    return time.process_time() - started
unit_seconds = min(unit() for _ in range(3))
before, started = peak_bytes(), time.process_time()
try:
    read(sys.argv[1], Path(sys.argv[2]))
    result = "accepted"
except TokenizerCoreError as error:
    result = str(error)
seconds, extra = time.process_time() - started, peak_bytes() - before
found = {"result": result, "seconds": seconds, "extra_bytes": extra}
print(json.dumps(found | {"unit_seconds": unit_seconds}))
"""

Content = bytes | dict
BYTES_OF_TIKTOKEN = b"".join(b"%b %d\n" % (base64.b64encode(bytes([i])), i) for i in range(256))


def read(reader: str, folder: Path) -> Tokenizer:
    """The tokenizer of the files in `folder`."""
    if reader == "load":
        return Tokenizer.load(folder / "tokenizer.json")
    if reader == "folder":
        return Tokenizer.load(folder)
    if reader == "tokenizer_json":
        return Tokenizer.from_tokenizer_json(folder / "tokenizer.json")
    if reader == "tekken":
        return Tokenizer.from_tekken(folder / "tekken.json")
    if reader == "tiktoken":
        return Tokenizer.from_tiktoken(folder / "x.tiktoken", pattern="gpt2", special_tokens={})
    return Tokenizer.from_files(folder / "vocab.json", folder / "merges.txt")


def write(folder: Path, files: dict[str, Content]) -> None:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)


def table(**model: object) -> dict:
    made = json.loads(render_tokenizer_json(trained_spec()))
    made["model"].update(model)
    return made


def as_written(field: str, content: bytes) -> bytes:
    """A table with this JSON as a field of its model: a large one takes `json` ten seconds."""
    return json.dumps(table(**{field: "here"})).encode().replace(b'"here"', content)


def with_entries(entries: dict[str, object]) -> dict:
    made = table()
    made["model"]["vocab"].update(entries)
    return made


def with_merges(*merges: object) -> dict:
    made = table()
    made["model"]["merges"] += merges
    return made


def with_added(contents: list[str]) -> dict:
    made = table()
    first = made["added_tokens"][0]
    made["added_tokens"] = [
        {**first, "id": 356 + i, "content": content, "normalized": i % 2 == 1}
        for i, content in enumerate(contents)
    ]
    return made


def with_regex(expression: str) -> dict:
    made = json.loads(render_tokenizer_json(trained_spec(pattern="cl100k")))
    made["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = expression
    return made


def with_steps(n_steps: int) -> dict:
    made = table()
    digits = {"type": "Digits", "individual_digits": True}
    steps = [*[digits] * n_steps, made["pre_tokenizer"]]
    return {**made, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def values(item: bytes, n: int) -> bytes:
    return b'{"version":[' + b",".join([item] * n) + b"]}"


def million(n_entries: int = 1_000_000, **model: object) -> dict:
    """A sound vocabulary of all strings of one and two bytes, and of many of three; `model` changes
    it, with `vocab` and `merges` added to those."""
    made = table()
    alphabet = [text for text, id_ in made["model"]["vocab"].items() if id_ < 256]
    two = list(map("".join, itertools.product(alphabet, alphabet)))
    more = itertools.product(alphabet, two)
    vocab, merges = [*alphabet, *two], list(map(" ".join, itertools.product(alphabet, alphabet)))
    for last, first in itertools.islice(more, n_entries - len(vocab)):
        vocab.append(first + last)
        merges.append(f"{first} {last}")
    made["added_tokens"] = []
    made["model"]["vocab"] = {text: i for i, text in enumerate(vocab)} | model.pop("vocab", {})
    made["model"]["merges"] = [*merges, *model.pop("merges", [])]
    made["model"].update(model)
    return made


def million_with(end: bytes) -> bytes:
    """A million entries, and this for the end of `vocab`."""
    return json.dumps(million()).encode().replace(b'}, "merges"', end)


def late(message: str, **model: object) -> tuple:
    """A fault at the end of a million entries or merges."""
    return in_json(lambda: million(**model), message)


def tekken(n_more: int = 0, **config: object) -> dict:
    made = small_tekken(["<a>"], n_special=5)
    made["config"].update(config)
    entries = range(316, 316 + n_more)
    made["vocab"] += [{"rank": i, "token_bytes": "AAAA", "token_str": None} for i in entries]
    return made


def long_rank(data: bytes) -> bytes:
    return BYTES_OF_TIKTOKEN + base64.b64encode(data) + b" 300\n"


def gpt2(**entries: object) -> dict[str, Content]:
    return {"vocab.json": table()["model"]["vocab"] | entries, "merges.txt": b"l o\n"}


def in_json(make: Callable[[], Content], message: str) -> tuple:
    return "tokenizer_json", lambda: {"tokenizer.json": make()}, message


LARGE = {
    "5 million entries": in_json(
        lambda: as_written("vocab", b"{%b}" % b",".join(b'"z%x":1' % i for i in range(5_000_000))),
        "4194304 values",
    ),
    "40 million lists": in_json(lambda: values(b"[]", 40_000_000), "4194304 values"),
    "40 million strings": in_json(lambda: values(b'""', 40_000_000), "4194304 values"),
    "60 million numbers": in_json(lambda: values(b"1", 60_000_000), "4194304 values"),
    "as many lists as may be": in_json(
        lambda: values(b"[]", (1 << 21) - 2), r"tokenizer\.version is"
    ),
    "5 million merges": in_json(
        lambda: as_written("merges", b"[%b]" % b",".join([b'"a b"'] * 5_000_000)), "4194304 values"
    ),
    "a late merge of three": late(r"merges\[999744\] is 'a b c'", merges=["a b c"]),
    "a late merge of a number": late(r"merges\[999744\] is 5", merges=[5]),
    "a late merge of no token": late("merge 999744 .*needs the token b'zzzzz'", merges=["zzzzz z"]),
    "a late merge to no token": late("merge 999744 .*needs the token b'abcd'", merges=["ab cd"]),
    "a late merge of no alphabet": late(r"merges\[999744\] is '中 a'", merges=["中 a"]),
    "a late merge twice": late("merge 999744 .* stands twice", merges=["! !"]),
    "a late id twice": late("id 5 stands for two tokens", vocab={"zzzzz": 5}),
    "a late id of 2^32": late("'zzzzz' has the id 4294967296", vocab={"zzzzz": 1 << 32}),
    "a late id that is no integer": late("'zzzzz' has the id 1.5", vocab={"zzzzz": 1.5}),
    "a late key twice": in_json(
        lambda: (
            json.dumps(million()).encode().replace(b'}, "merges"', b', "!": 1000000}, "merges"')
        ),
        "the key '!' twice",
    ),
    "a late lone surrogate": late("a lone surrogate", vocab={"\ud800": 1_000_000}),
    "a late comma that is missing": in_json(
        lambda: million_with(b' "z": 3}, "merges"'),
        "not JSON: Expecting ',' delimiter",
    ),
    "as many entries as may be": in_json(
        lambda: with_entries({f"z{i:x}": i for i in range(1000, 4_190_000)}),
        "'z100000' has the id 1048576",
    ),
    "commas in strings": in_json(
        lambda: {
            **with_entries({"," * n: n for n in range(1_000_000, 1_000_006)}),
            "added_tokens": [],
        },
        "accepted",
    ),
    "a token of 100 MB": in_json(
        lambda: {**with_entries({"z" * 100_000_000: 356}), "added_tokens": []},
        "more than 1048576; leave it out",
    ),
    "300,000 added tokens": in_json(
        lambda: with_added([f"<{i}>" for i in range(300_000)]), "more than 131072 added_tokens"
    ),
    "5,000 overlapping added tokens": in_json(
        lambda: with_added(["<" * 1000 + str(i) for i in range(5000)]), "accepted"
    ),
    "300,000 steps": in_json(lambda: with_steps(300_000), "300001 steps, more than 64"),
    "an expression of 1 MB": in_json(
        lambda: with_regex("a|" * 500_000 + "b"), "more than 20000 characters"
    ),
    "a number of 100 MB": in_json(lambda: b'{"a":' + b"1" * 100_000_000 + b"}", "4,300 digits"),
    "5 million brackets": in_json(lambda: b"[" * 5_000_000, "4194304 values"),
    "4 million brackets": in_json(lambda: b"[" * 4_000_000, "nested too deep"),
    "200 MB": in_json(lambda: b" " * 200_000_000, "larger than 134217728"),
    "a rank of 40 MB": (
        "tiktoken",
        lambda: {"x.tiktoken": long_rank(b"ab" * 20_000_000)},
        "40000000 bytes, more than 1048576",
    ),
    "4 million ranks": (
        "tiktoken",
        lambda: {"x.tiktoken": b"".join(b"AAAA %d\n" % i for i in range(4_000_000))},
        "more than 2097152 lines",
    ),
    "2 million ranks": (
        "tiktoken",
        lambda: {
            "x.tiktoken": b"".join(
                b"%b %d\n" % (base64.b64encode(b"%d" % i), i) for i in range(2_000_000)
            )
        },
        "more than 1048576 tokens",
    ),
    "60 million empty lines": ("tiktoken", lambda: {"x.tiktoken": b"\n" * 60_000_000}, "lines"),
    "a line of 60 MB": ("tiktoken", lambda: {"x.tiktoken": b"A" * 60_000_000}, "line 1"),
    "1.5 million entries": ("tekken", lambda: {"tekken.json": tekken(1_500_000)}, "4194304 values"),
    "a merge of 60 MB": (
        "files",
        lambda: gpt2() | {"merges.txt": b"a" * 60_000_000},
        "merges line 1",
    ),
    "2 million merges": (
        "files",
        lambda: (
            gpt2() | {"merges.txt": b"".join(b"%x %x\n" % divmod(i, 256) for i in range(2_000_000))}
        ),
        "belong to another vocabulary",
    ),
    "5 million lines": (
        "files",
        lambda: gpt2() | {"merges.txt": b"a b\n" * 5_000_000},
        "have 5000000 lines, and the 356 tokens",
    ),
    "60 million numbers in a config": (
        "folder",
        lambda: {"tokenizer.json": table(), "tokenizer_config.json": values(b"1", 60_000_000)},
        "4194304 values",
    ),
}


@pytest.mark.parametrize("name", first_and_thorough(LARGE))
def test_large_files_are_refused_at_once_and_in_little_memory(name, tmp_path):
    reader, make, message = LARGE[name]
    write(tmp_path, make())
    done = subprocess.run(
        [sys.executable, "-c", READER, reader, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).resolve().parents[2],
        check=True,
    )
    found = json.loads(done.stdout)
    slowness = max(1.0, found["unit_seconds"] / UNIT_SECONDS)
    assert found["seconds"] < MAX_SECONDS * slowness, found["result"][:200]
    assert found["extra_bytes"] < MAX_EXTRA_BYTES
    assert re.search(message, found["result"])
    assert len(found["result"]) < 1000


IDS = [1 << 20, 1 << 32, 1 << 70, -1, 1.0, 1e99, True, None, "5", [5], {}]


@pytest.mark.parametrize("id_", IDS)
def test_ids_that_are_none_are_refused_by_their_token(id_, tmp_path):
    write(tmp_path, {"tokenizer.json": with_entries({"zz": id_}), **gpt2(zz=id_)})
    for reader in ("tokenizer_json", "load", "files", "folder"):
        with pytest.raises(FormatError, match=r"the token 'zz' has the id .*0\.\.1048575"):
            read(reader, tmp_path)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (with_merges(["a", ""]), r"merges\[100\]"),
        (with_merges(["a"]), r"merges\[100\]"),
        (with_merges(["a", 5]), r"merges\[100\]"),
        (with_merges("a b c"), r"merges\[100\]"),
        (with_merges(["z", "q"]), "merge 100 .*needs the token b'zq'"),
        (with_merges(["zz", "z"], ["z", "zz"]), "merge 100 .*needs the token b'zz'"),
        (with_merges(["l", "o"], ["l", "o"]), "merge 1.* stands twice|needs the token"),
        (with_entries({"zz": 5}), "id 5 stands for two tokens"),
        (with_entries({"zz": 900_000}), "says id 356 for the added token"),
        (with_regex("(a+)+$"), "match one text in two ways"),
        (with_regex("(?:a|a)*b"), "match one text in two ways"),
        (with_regex("(?:(?:a{1,999}){1,999}){1,999}"), "repetitions of more than"),
        (with_regex("(" * 5000 + "a" + ")" * 5000), "nested more than"),
    ],
)
def test_contents_that_do_not_fit_are_refused_by_name(made, message, tmp_path):
    write(tmp_path, {"tokenizer.json": made})
    for reader in ("tokenizer_json", "load"):
        with pytest.raises((FormatError, InvalidSpecError), match=message):
            read(reader, tmp_path)


def test_merges_that_make_each_other_encode_without_end_to_merging(tmp_path, engine):
    """No symbol ever begins such a circle: each merge makes a longer token."""
    made = with_merges(["zz", "z"], ["z", "zz"], ["z", "z"])
    n_entries = len(made["model"]["vocab"])
    made["model"]["vocab"] |= {"zz": n_entries, "zzz": n_entries + 1}
    made["added_tokens"] = []
    write(tmp_path, {"tokenizer.json": made})
    tokenizer = Tokenizer.from_tokenizer_json(tmp_path / "tokenizer.json", engine=engine)
    assert tokenizer.decode(tokenizer.encode("z" * 1000)) == "z" * 1000


MARKED = "byte order mark.*(remove it|without one)"
BROKEN = [
    (lambda data: b"", "not JSON|none of|empty"),
    (lambda data: b"\0" * 100, "not JSON|none of|line 1"),
    (lambda data: data + b"\0", "not JSON|line"),
    (lambda data: b"\xef\xbb\xbf" + data, MARKED),
    (lambda data: data.decode().encode("utf-16"), f"{MARKED}|not UTF-8|line 1"),
    (lambda data: data[:-7] + b"\xff", "not UTF-8|not JSON|line"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
@pytest.mark.parametrize("reader", ["tokenizer_json", "load", "tekken", "tiktoken", "files"])
def test_broken_files_are_refused_with_the_reason(reader, change, message, tmp_path):
    files = {
        "tokenizer.json": table(),
        "tekken.json": tekken(),
        "x.tiktoken": BYTES_OF_TIKTOKEN,
        **gpt2(),
    }
    write(tmp_path, files)
    read(reader, tmp_path)
    for name in files:
        if name != "vocab.json":
            (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    if reader == "files" and change(b"l o\n") == b"":
        return  # an empty list of merges is one
    with pytest.raises(TokenizerCoreError, match=message):
        read(reader, tmp_path)


def test_line_ends_of_windows_change_nothing(tmp_path):
    write(tmp_path, {"tokenizer.json": table(), "x.tiktoken": BYTES_OF_TIKTOKEN})
    before = [read(reader, tmp_path).spec for reader in ("tokenizer_json", "tiktoken")]
    indented = json.dumps(table(), indent=1).replace("\n", "\r\n").encode()
    lines = BYTES_OF_TIKTOKEN.replace(b"\n", b"\r\n")
    write(tmp_path, {"tokenizer.json": indented, "x.tiktoken": lines})
    assert [read(reader, tmp_path).spec for reader in ("tokenizer_json", "tiktoken")] == before
