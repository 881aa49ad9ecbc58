"""`tokenizer promote` and `rollback`: which version is served, and how to go back."""

import json
from dataclasses import replace

from tests.tokenizer_core.formats.model_folders import DIFFERING, make_folder
from tests.tokenizer_core.formats.small_specs import added_token
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import AddedToken


def served(cli):
    rows = json.loads(cli.run("list", "--json")[0])
    (active,) = [f"{row['name']}@{row['version']}" for row in rows if row["active"]]
    return active


def test_a_version_is_removed_unless_it_is_in_use(cli):
    for size in (258, 259, 260, 261):
        cli.run("train", "corpus.txt", f"--vocab-size={size}", "--name=news")
    store = ArtifactStore(cli.folder / "artifacts")
    first, second, third, fourth = map(str, store.versions("news"))
    for version in (second, third):
        cli.run("promote", version)
        assert f"{version} is in use: it is active; promote" in cli.fail("remove", version)
    assert "in use: a rollback would serve it; promote another" in cli.fail("remove", second)
    assert "one version" in cli.fail("remove", "news", code=2)
    assert cli.run("remove", first)[0] == f"removed {first}\n".encode()
    assert [*map(str, store.versions("news"))] == [second, third, fourth]


def test_rollback_returns_to_the_version_served_before(cli):
    cli.run("import", "starter", "--name=starter", "--promote")
    assert "all that was ever served" in cli.fail("rollback")
    for size in (258, 259, 260):
        cli.run("train", "corpus.txt", f"--vocab-size={size}", "--name=news")
    assert "there is no tokenizer 'none'" in cli.fail("rollback", TOKENIZER_DEFAULT="none")
    (cli.folder / "artifacts" / "active.json").unlink()
    versions = [str(ref) for ref in ArtifactStore(cli.folder / "artifacts").versions("news")]
    assert served(cli).startswith("starter@")  # the default, shown before any promotion
    assert "nothing was promoted before" in cli.fail("rollback")
    cli.run("promote", versions[0])
    cli.run("rollback")
    assert served(cli).startswith("starter@")
    cli.run("promote", versions[2])
    out, _ = cli.run("promote", versions[1])
    again, _ = cli.run("promote", versions[1])  # is active already
    assert out.decode().splitlines()[-1] == f"back again:  tokenizer promote {versions[2]}"
    assert again == out
    for expected in (versions[2], versions[1]):  # a second rollback undoes the first
        cli.run("rollback")
        assert served(cli) == expected
    found = json.loads(cli.run("rollback", "--json")[0])
    for key, ref in (("active", versions[2]), ("previous", versions[1])):
        assert f"news@{found[key]['version']}" == ref
    # From a damaged version there is a way back, too.
    cli.run("promote", versions[1])
    folder = cli.folder / "artifacts" / "tokenizers" / versions[1].replace("@", "/")
    (folder / "manifest.json").write_text("{}")
    assert "restore it from a backup" in cli.fail("list")
    cli.run("rollback")
    assert served(cli) == versions[2]
    (cli.folder / "artifacts" / "active.json").write_text("")
    assert "active.json" in cli.fail("encode", "a")
    listed, said = cli.run("list", code=1)
    assert versions[0] in listed.decode()
    assert said.endswith("; promote a version\n")


def test_any_tokenizer_is_inspected_and_only_a_published_one_serves(trained):
    tokenizer = Tokenizer.from_preset("gpt2")
    tokenizer.save(trained.folder / "tokenizer.json")
    shown = trained.run("inspect", "gpt2", "tokenizer.json", "worked")[0].decode()
    heads = [line for line in shown.splitlines() if not line.startswith(" ")]
    assert heads[:2] == ["gpt2", "tokenizer.json"]
    assert f"digest       {tokenizer.spec.fingerprint}\n  kind         ranks" in shown
    assert shown.count("  made  ") == 1  # only a published one says when
    page, _ = trained.run("inspect", "worked", "--html", "-")
    assert page.startswith(b"<!doctype html>")
    assert b"longest tokens" not in page
    path = str(trained.folder / "tokenizer.json")
    for words, code, reason in (
        (("inspect", "gpt2", "--json"), 1, "has no manifest: leave out --json"),
        (("inspect", "gpt2", "--html=page.html"), 1, "no report of its training"),
        (("inspect", "worked", "gpt2", "--json"), 2, "name only one"),
        (("promote", "gpt2"), 1, "it: tokenizer import --preset gpt2 --name gpt2"),
        (("promote", "starter"), 1, "publish it: tokenizer import starter --name starter"),
        (("encode", "--tokenizer", "gpt-4o", "x"), 1, "its preset is o200k_base"),
        (("promote", path), 1, f"publish it: tokenizer import {path} --name NAME"),
    ):
        assert reason in trained.fail(*words, code=code)


def test_chat_templates_of_a_folder_and_of_files(cli):
    config = {"chat_template": [{"name": "rag", "template": "r"}], "eos_token": "<|endoftext|>"}
    make_folder(cli.folder / "model", tokenizer_config=config)
    (cli.folder / "a=b.jinja").write_text("d\n")
    command = ("import", "./model", "--name=m")
    default = ("--chat-template", "a=b.jinja")
    rag = ("--chat-template", "rag=a=b.jinja")
    store = ArtifactStore(cli.folder / "artifacts")
    for options, expected in (
        ((), {"rag": "r"}),
        (default, {"default": "d\n", "rag": "r"}),
        ((*default, *rag), {"default": "d\n", "rag": "d\n"}),
    ):
        cli.run(*command, *options)
        chat = store.open(store.versions("m")[-1]).chat
        assert (dict(chat.sources), chat.variables) == (expected, {"eos_token": "<|endoftext|>"})
        output = f"m{len(options)}"
        cli.run("convert", "m", "--to=transformers", f"--output={output}")
        assert Tokenizer.load(cli.folder / output).spec.chat == chat
    cli.run("import", "m", "--name=n", "--max-model-len=40960")
    assert store.open(store.versions("n")[-1]).chat == replace(chat, max_model_len=40960)
    assert "from 1 to 2^31" in cli.fail("import", "m", "--name=n", "--max-model-len=0")
    out = cli.run("inspect", "m")[0].decode()
    for name in ("default", "rag"):
        assert f"chat         {name}  2 bytes  sha256 " in out
    assert "--chat-template gives default twice" in cli.fail(*command, *default, *default, code=2)
    for name, source, reason in (
        ("loop.jinja", b"a\n{% for m in messages %}", "loop.jinja is no chat template: line 2"),
        ("loop.jinja", b"{{" + b"(" * 9_999, "deep"),
        ("latin.jinja", b"\xff", "not UTF-8 at byte 0"),
        ("../x=a=b.jinja", None, "of a chat template must have"),
        ("x.jinja", None, "x.jinja"),
    ):
        if source is not None:
            (cli.folder / name).write_bytes(source)
        assert reason in cli.fail(*command, f"--chat-template={name}")


def test_control_tokens_of_templates_and_of_the_option(cli):
    (cli.folder / "chat.jinja").write_text("{{ '<think>' }}")
    added = [
        AddedToken(token, id_, special=False) for id_, token in enumerate(["<think>", "<b>"], 256)
    ]
    vocab = {byte: bytes([byte]) for byte in range(256)}
    Tokenizer.from_spec(TokenizerSpec.from_merges(vocab, [], added)).save(
        cli.folder / "tokenizer.json"
    )
    command = ("import", "tokenizer.json", "--name=m", "--chat-template=chat.jinja")
    cli.run(*command)
    assert b"  control      <think> = 256\n" in cli.run("inspect", "m")[0]
    cli.run(*command, "--control-token=<b>", "--control-token=<b>")
    cli.run("import", "m", "--name=m")  # a name that was published keeps them
    assert b"  control      <think> = 256, <b> = 257\n" in cli.run("inspect", "m")[0]
    store = ArtifactStore(cli.folder / "artifacts")
    assert store.open(store.resolve("m")).chat.control_tokens == ("<b>",)
    cli.run(*command, "--output-parser=qwen3")
    cli.run("import", "m", "--name=m")
    assert store.open(store.versions("m")[-1]).chat.output_parser == "qwen3"
    refused = cli.fail(*command, "--control-token=<c>")
    assert "'<c>' is no added token of this tokenizer" in refused


def test_the_ids_of_a_folder_are_examined_chosen_and_recorded(cli):
    folder = make_folder(cli.folder / "model", **DIFFERING["smollm"])
    assert "name the folder of a model" in cli.fail("doctor", "model/tokenizer.json", code=2)
    out, _ = cli.run("doctor", "model", code=3)
    lines = out.decode().splitlines()
    assert lines[0] == "file           tokenizer.json       its own ids"
    assert lines[1] == "transformers4  transformers 4.57.6  the ids of file"
    assert lines[2] == "transformers5  transformers 5.24.0  its own ids"
    assert lines[3] == "they differ in the split pattern"
    way = f"tokenizer import {folder} --name NAME --ids file|transformers5"
    assert lines[-1] == f"choose:  {way}"
    found = json.loads(cli.run("doctor", "model", "--json", code=3)[0])
    assert found["ids"]["transformers5"]["same_as"] == "transformers5"
    assert "--ids" in cli.fail("import", "./model", "--name=m")
    store = ArtifactStore(cli.folder / "artifacts")
    for ids, label in {"file": "tokenizer.json", "transformers5": "transformers 5.24.0"}.items():
        cli.run("import", "./model", "--name=m", f"--ids={ids}")
        newest = store.versions("m")[-1]
        assert store.open(newest) == Tokenizer.load(folder, ids=ids).spec
        assert store.read_manifest(newest).provenance[0]["ids"] == label
        assert f" {label}, for model  sha256 ".encode() in cli.run("inspect", "m")[0]
    make_folder(folder, tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    assert b"its own ids\n" in cli.run("doctor", "model")[0]


def test_contradictions_of_a_folder_are_named(cli):
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "add_bos_token": True,
        "add_prefix_space": True,
        "added_tokens_decoder": {"300": added_token("<bos>", lstrip=True)},
        "extra_special_tokens": {"start_token": "<bos>"},  # a name with a token, and no list
    }
    maps = {"bos_token": "<|endoftext|>", "additional_special_tokens": ["<bos>"]}
    make_folder(cli.folder / "m", tokenizer_config=config, special_tokens_map=maps)
    shown = cli.run("doctor", "m", code=3)[0]
    assert b"\ncorrect the files, or take:  tokenizer import /" in shown
    found = json.loads(cli.run("doctor", "m", "--json", code=3)[0])
    assert found["contradictions"] == [
        "tokenizer.json and added_tokens_decoder of tokenizer_config.json differ on the token "
        "'<bos>': id, lstrip",
        "bos_token is '<bos>' in tokenizer_config.json, and '<|endoftext|>' in "
        "special_tokens_map.json",
        "add_bos_token of tokenizer_config.json is true, and the post_processor of tokenizer.json "
        "does not add the token",
        "add_prefix_space of tokenizer_config.json is true, and tokenizer.json does not put a "
        "space before a text",
    ]


def test_aliases_are_added_listed_and_removed(cli):
    cli.run("train", "corpus.txt", "--vocab-size=258", "--name=news")
    out, _ = cli.run("alias", "news", "Qwen/Qwen3-8B")
    assert out == b"Qwen/Qwen3-8B is news\n"
    assert json.loads(cli.run("alias", "--json")[0]) == {"Qwen/Qwen3-8B": "news"}
    assert cli.run("alias")[0] == b"Qwen/Qwen3-8B  news\n"
    train = ("train", "corpus.txt", "--vocab-size=258", "--name")
    cli.run("alias", "Qwen/Qwen3-8B", "qwen")
    cli.run("train", "corpus.txt", "--vocab-size=263", "--name=news")
    ids = cli.run("encode", "newest", "--tokenizer=news")[0]
    for name in ("qwen", "Qwen/Qwen3-8B"):
        assert cli.run("encode", "newest", "--tokenizer", name)[0] == ids
        cli.run("compare", name, "news")
        cli.run("import", name, "--name=again")
        assert cli.run("promote", name)[0].startswith(b"news@")
    older, newest = map(str, ArtifactStore(cli.folder / "artifacts").versions("news"))
    cli.run("promote", older)
    for command in (("encode", "x", "--tokenizer"), ("inspect",)):
        for name in ("qwen", "news"):
            note = f"note: this is {newest}, the newest; {older} serves\n"
            assert cli.run(*command, name)[1] == note
        for name in ("active", older, newest):
            assert cli.run(*command, name)[1] == ""
    for words, code, reason in (
        (("alias", "starter", "x"), 1, "tokenizer import starter --name starter"),
        (("encode", "x", "--tokenizer=Qwen/Qwen3"), 1, "tokenizer pull Qwen/Qwen3"),
        (("encode", "x", "--tokenizer=qwen@1"), 1, "'qwen' is an alias; name its tokenizer, news"),
        (("alias", "news", "news"), 1, "there is a tokenizer named news"),
        (("alias", "news"), 2, "tokenizer alias NAME ALIAS"),
        (("alias", "news", "x", "--remove", "y"), 2, "in two commands"),
        (("alias", "--remove", "x"), 1, "no such alias"),
        ((*train, "qwen"), 1, "qwen is an alias of news"),
    ):
        assert reason in cli.fail(*words, code=code)
    cli.run("alias", "--remove", "qwen")
    cli.run(*train, "qwen")
    cli.run("alias", "--remove", "Qwen/Qwen3-8B")
    assert cli.run("alias")[0] == b"no alias\n"


def test_the_name_of_the_starter_belongs_to_its_ids(cli):
    """`--tokenizer starter`, and no name at all, find it in the package."""
    cli.run("train", "corpus.txt", "--vocab-size=258", "--name=mine")
    for command in (
        ("train", "corpus.txt", "--vocab-size=258"),
        ("shrink", "mine", "corpus.txt"),
        ("import", "mine"),
    ):
        assert "whose ids are other ones" in cli.fail(*command, "--name=starter")
    cli.run("import", "starter", "--name=starter")
