"""`--server URL`: a command prints what it prints with the same tokenizer here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.server_process import ADMIN_KEY, serve
from tests.tokenizer_service.conftest import CORPUS
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.cli import build_whole_parser

TEXT = "the quick <|endoftext|> brown 中文 fo\r\n"
LONG = (CORPUS + TEXT) * 2_000  # several reads and several parts of a stream
CASES = """
encode TEXT
encode --json --tokenizer other TEXT
encode --tokenizer a/model TEXT
encode --format u16 --file text.txt text.txt
encode --format u32 --quiet --file long.txt --output OUTPUT
encode --pieces --tokenizer NAME@VERSION TEXT
encode --allowed-special none TEXT
encode --allowed-special ordinary --file long.txt
encode --allowed-special <|endoftext|> --pieces TEXT
encode --add-special-tokens --tokenizer around --file text.txt long.txt
encode --disallowed-special <|a|>,<|a|><|a|> --allowed-special ordinary TEXT
encode
count TEXT
count --json --quiet --allowed-special none --file text.txt long.txt
count --json --tokenizer other TEXT
count --allowed-special ordinary --format jsonl --field story --file s.jsonl
count --format txt --file long.txt text.txt
count --add-special-tokens --tokenizer around TEXT
count --disallowed-special <|a|> TEXT
count
truncate -n 5 TEXT
truncate -n 5 --disallowed-special <|a|> TEXT
truncate -n 5 --side left --json --quiet --allowed-special none --file text.txt --tokenizer other
chunk -n 3 --overlap-tokens 1 --file text.txt --quiet --tokenizer other
chunk -n 7 --allowed-special ordinary --disallowed-special <|a|>
decode 84 104 101 256 257 195
decode --skip-special-tokens --quiet 84 256 228
decode --tokenizer other 1195 1097
decode --format u16 --file ids.u16
decode --format u32 --file ids.u32 --output OUTPUT
decode
"""
REFUSED = {"--files", "--pattern", "--special", "--artifacts-dir"}


@pytest.fixture(scope="module")
def service(starter_artifacts, other_spec, tmp_path_factory):
    folder = shutil.copytree(starter_artifacts, tmp_path_factory.mktemp("served") / "artifacts")
    ArtifactStore(folder).publish(other_spec, name="other")
    around = replace(other_spec, prefix_ids=(1195,), suffix_ids=(1097, 1195))
    ArtifactStore(folder).publish(around, name="around")
    ArtifactStore(folder).add_alias("a/model", "other")
    for spec in (other_spec, around):
        ref = ArtifactStore(folder).publish(spec, name="twice")
        if spec is other_spec:
            ArtifactStore(folder).promote(ref)
    ArtifactStore(folder).promote(ArtifactStore(folder).resolve("starter"))
    with serve(folder) as running:
        yield running, ArtifactStore(folder)


@pytest.fixture
def both(service, tmp_path, monkeypatch):
    """Run a command with the tokenizers of a folder and with the service on it."""
    server, store = service
    cli = Cli(tmp_path, monkeypatch)
    ways = {"here": f"--artifacts-dir={store.root}", "served": f"--server={server.url}"}

    def run(*words, **options):
        found = {}
        for name, way in ways.items():
            named = [{"OUTPUT": name, "TEXT": TEXT}.get(word, word) for word in words]
            n_words = 2 if named[0] == "jobs" else 1
            found[name] = [*cli.run(*named[:n_words], way, *named[n_words:], **options)]
            if "OUTPUT" in words:
                found[name].append(Path(name).read_bytes())
        assert found["here"] == found["served"], words
        return found["served"][0]

    return run


def test_every_option_gives_the_same_output(both, service):
    _, store = service
    Path("text.txt").write_bytes(TEXT.encode())
    Path("long.txt").write_bytes(LONG.encode())
    rows = [json.dumps({"story": TEXT * n}) for n in (0, 1, 600, 2)] * 300
    Path("s.jsonl").write_text("\n".join(rows))
    ids = store.load(store.resolve("starter")).encode(LONG)
    Path("ids.u16").write_bytes(b"".join(id_.to_bytes(2, "little") for id_ in ids))
    Path("ids.u32").write_bytes(b"".join(id_.to_bytes(4, "little") for id_ in ids * 40))
    used = {}
    for line in CASES.strip().splitlines():
        words = line.replace("NAME@VERSION", str(store.resolve("starter"))).split()
        stdin = b"84 104 259" if words[0] == "decode" else TEXT.encode()
        assert both(*words, stdin=stdin) or "OUTPUT" in words
        used.setdefault(words[0], set()).update(words)
    assert both("encode", "--file", "long.txt", "--format", "json") == b"%a\n" % ids
    assert both("encode", "") == b"\n"
    assert both("encode", "--add-special-tokens", "--tokenizer=around", "") == b"1195 1097 1195\n"
    mixed = ("--file", "text.txt", "s.jsonl", "--field=story", "--allowed-special=all")
    lines = both("count", "--add-special-tokens", "--tokenizer=around", *mixed).splitlines()
    assert [line.split()[1] for line in lines] == [b"text.txt", b"s.jsonl", b"total"]
    assert both("encode", "--json", "--tokenizer=around", "") == b"[]\n"
    [subcommands] = [a for a in build_whole_parser()._actions if a.dest == "command"]
    for command, tried in used.items():
        for action in subcommands.choices[command]._actions:
            names = set(action.option_strings)
            aside = REFUSED | {"--help", "--server", "--max-tokens"}
            assert not names or names & (tried | aside), f"{command} {names}: no case"


def test_jobs_are_those_of_the_service(both, service, monkeypatch):
    server, _ = service
    request = {"promote": "manual", "documents": ["low lower"], "name": "z", "vocab_size": 257}
    with server.client() as client:
        job_id = client.post("/train", json=request).raise_for_status().json()["id"]
    key = {"TOKENIZER_API_KEY": ADMIN_KEY}
    assert job_id in both("jobs", "watch", job_id, **key).decode()
    unknown = Cli(Path(), monkeypatch).fail("jobs", "show", "x", "--server", server.url, **key)
    assert "the service has no such job; tokenizer jobs list shows them" in unknown
    for words in (("list",), ("list", "--json"), ("show",), ("show", "--json"), ("cancel", job_id)):
        assert job_id.encode() in both("jobs", *words, **key)


def test_what_is_of_tokenizers_here_is_refused_by_name(service, tmp_path, monkeypatch):
    cli = Cli(tmp_path, monkeypatch)
    asked = ("count", "--server", service[0].url, "low")
    for option in REFUSED:
        value = "<|a|>=5" if option == "--special" else "x"
        assert f"{option} names a tokenizer of this" in cli.fail(*asked, option, value, code=2)


def test_a_name_whose_newest_version_does_not_serve_has_a_note(both, service, monkeypatch):
    server, store = service
    first, newest = store.versions("twice")
    both("encode", "low", "--tokenizer=twice")
    cli = Cli(Path(), monkeypatch)
    _, note = cli.run("count", "--server", server.url, "low", "--tokenizer=twice")
    assert note == f"note: this is {newest}, the newest; {first} serves\n"


def test_an_error_of_the_service_is_one_line(service, tmp_path, monkeypatch):
    cli = Cli(tmp_path, monkeypatch)
    url = f"--server={service[0].url}"
    Path("bad.txt").write_bytes(b"low\xff")
    Path("d.jsonl").write_text('{"text": "low"}\n' * 301 + json.dumps({"text": TEXT}))
    for words, said, code in (
        (("count", url, "--tokenizer=othr", "low"), "did you mean other?; it has: a/model, aro", 1),
        (("count", url, "--tokenizer=gpt2", "low"), "import --preset gpt2 --name gpt2", 1),
        (("count", url, "--tokenizer=other@1", "low"), "no version '1' of other", 1),
        (("count", url, "--tokenizer=other@", "low"), "no version '' of other", 1),
        (("count", url, "--tokenizer=./tokenizer.json", "low"), "it has: a/model, around, ", 1),
        (("encode", url, "--allowed-special=<|x|>", "low"), "is no special token", 2),
        (("truncate", url, "-n1", "low\udcff"), "the text holds bytes that are not UTF-8", 1),
        (("encode", url, "--disallowed-special=all", TEXT), "--disallowed-special forbids; le", 1),
        (("count", url, "--file=d.jsonl"), "d.jsonl, line 302: the document holds a special", 1),
        (("encode", url, "--file=bad.txt"), "bad.txt is not UTF-8 at byte 3", 1),
        (("decode", url, "5000000000"), "5000000000", 1),
        (("count", "--server=http://127.0.0.1:9", "low"), "is the service running?", 1),
        (("count", "--server=nowhere", "low"), "address of the service", 2),
        (("jobs", "list", "--server=nowhere"), "address of the service", 2),
        (("jobs", "list", url, "--artifacts-dir=a"), "exclude each other", 2),
    ):
        assert said in cli.fail(*words, code=code)


def test_a_missing_or_wrong_key_is_named_by_its_variable(starter_artifacts, tmp_path, monkeypatch):
    cli, read_key = Cli(tmp_path, monkeypatch), "read-key-of-this-test"
    with serve(starter_artifacts, read_keys=read_key) as server:
        for words, given, code, needed in (
            (("encode", "low"), None, "401 key_required", "a read key or an admin key"),
            (("jobs", "list"), None, "401 key_required", "an admin key (printed"),
            (("jobs", "watch"), "wrong", "401 key_required", "an admin key (printed"),
            (("jobs", "list"), read_key, "403 admin_key_required", "an admin key (printed"),
        ):
            environment = {"TOKENIZER_API_KEY": given} if given else {}
            line = cli.fail(*words, "--server", server.url, **environment)
            assert f": {code}: the service requires {needed}" in line
            found = "has another" if given else "is not set"
            assert line.endswith(f"from the variable TOKENIZER_API_KEY; it {found}\n")
