"""The journeys of examples/journeys: each program runs as its reader would run it."""

import ast
import json
import os
import pickle
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from starlette.testclient import TestClient

from tests.conftest import REPOSITORY
from tests.integration.server_process import ADMIN_KEY, publish_bytes, serve
from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import TokenDataset, TokenFilesWriter, plan_token_files
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training import TrainingOptions, train_from_iterator

EXAMPLES = REPOSITORY / "examples" / "journeys"
DATATROVE = Path(sys.prefix) / "datatrove"
END = "<|endoftext|>"
STORIES = [f"Once there was a {name} of {n} years.\n" for n in range(40) for name in ("cat", "dog")]


def run(program, *arguments, folder=None, **environment):
    """Run an example in a process of its own; return what it prints."""
    shell = "sh" if program.endswith(".sh") else sys.executable
    done = subprocess.run(
        [shell, EXAMPLES / program, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
        capture_output=True,
        text=True,
        timeout=400,  # jobs run at a low priority
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_lists_every_example():
    listed = re.findall(r"^\| \[.*\]\((.*?)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in EXAMPLES.glob("*.*"))


def test_a_newcomer_encodes_trains_and_converts(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = run("newcomer.sh", folder=tmp_path, PATH=path)
    starter, decoded, pieces, *rest = printed.splitlines()
    assert [int(id_) for id_ in starter.split()] == [10687, 44, 1948, 33]
    assert decoded == "Hello, world!"
    assert pieces == '2616\t"na"'
    tokenizer = Tokenizer.load(tmp_path / "zen.json")
    assert tokenizer.n_vocab == 400
    n_ids = tokenizer.count("Beautiful is better than ugly.")
    assert str(n_ids) in rest
    assert f"{n_ids} tokens: " in printed
    assert "zen" in printed


def test_a_data_engineer_prepares_files_of_every_format(tmp_path):
    artifacts, folder, tokens = (tmp_path / name for name in ("artifacts", "corpora", "tokens"))
    folder.mkdir()
    publish_bytes(artifacts, "starter")
    documents = [f"{story}naïve and 東京. " * 40 for story in STORIES[:30]]
    files = [
        write_corpus(folder / "news.jsonl.gz", documents[:10], "jsonl.gz"),
        write_corpus(folder / "books.parquet", documents[10:20], "parquet"),
        write_corpus(folder / "more.txt", documents[20:], "txt"),
    ]
    options = ["--name=stories", "--vocab-size=300", "--validation-share=0.4", "--promote"]
    with serve(artifacts) as server:
        service = {"TOKENIZER_URL": server.url, "TOKENIZER_API_KEY": ADMIN_KEY}
        printed = run(
            "data_engineer.py", *files, "--tokens", tokens, *options, "--promote", **service
        )
    store = ArtifactStore(artifacts)
    ref = store.resolve("stories")
    assert f"trained {ref}" in printed
    assert store.active() == ref
    expected = train_from_iterator(documents, TrainingOptions(300, [END]))
    assert list(store.open(ref).merges) == expected.merges
    # The printed figures match the files, and the files contain the documents.
    tokenizer = Tokenizer.from_spec(store.open(ref))
    made = TokenDataset.open(tokens, tokenizer).files
    assert f"a batch (4, 32) of {made.n_tokens('train')} mapped ids" in printed
    found = [
        made.decode_document(index, tokenizer, split.name)
        for split in made.manifest.splits
        for index in range(split.n_documents)
    ]
    assert sorted(found) == sorted(document + END for document in documents)


def test_a_library_user_replaces_tiktoken(tmp_path):
    text = "Hello, world! <|endoftext|> naïve"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    printed = run("replace_tiktoken.py", "gpt2", 4, tmp_path / "a.txt")
    ids = Tokenizer.from_preset("gpt2").encode(text, allowed_special="none")
    assert printed.splitlines() == [
        f"{tmp_path / 'a.txt'}: {len(ids)} tokens",
        f"{tmp_path / 'a.txt'} begins: 'Hello, world!'",
    ]
    source = (EXAMPLES / "replace_tiktoken.py").read_text(encoding="utf-8")
    assert "from tokenizer_core.compat import tiktoken  # was: import tiktoken" in source
    assert set(re.findall(r"encoding\.(\w+)\(", source)) <= set(dir(tiktoken.Encoding))


def test_a_notebook_user_sees_coloured_tokens():
    """Run the cells as a notebook does: the last expression of a cell is shown."""
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    names, shown = {}, []
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        *statements, last = tree.body
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    tokenizer, pieces, mine, listed = shown
    for value in (tokenizer, pieces, mine):
        markup = value._repr_html_()
        assert markup.count("<span ") >= 3
        assert "background:rgba(" in markup
    assert "naïve café" in re.sub("<[^>]*>", "", pieces._repr_html_())
    assert b"".join(listed).decode() == "the naïve café"


def test_a_model_server_knows_no_text(tmp_path, monkeypatch):
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
    names = ["<|user|>", "<|assistant|>"]
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], names)
    spec = tokenizer.with_chat_templates({"default": template}).spec
    store = ArtifactStore(tmp_path)
    store.promote(store.publish(spec, name="talking"))
    with serve(tmp_path) as server:
        monkeypatch.setenv("TOKENIZER_URL", server.url)
        app = runpy.run_path(str(EXAMPLES / "model_server.py"))["app"]
        with TestClient(app) as client:
            asked = {"messages": [{"role": "user", "content": "Hi <|user|>"}], "max_tokens": 10}
            chat = client.post("/v1/chat/completions", json=asked).json()
            # The last 10 ids: what the user typed, as text, and the token that the template wrote.
            assert chat["choices"][0]["message"]["content"] == " <|user|>"
            assert chat["usage"]["prompt_tokens"] == 1 + len("Hi <|user|>") + 1
            prompts = {"prompt": ["Hello", "a<|user|>"], "max_tokens": 3}
            answer = client.post("/v1/completions", json=prompts).json()
            assert [choice["text"] for choice in answer["choices"]] == ["llo", "a"]
            wrong = client.post("/v1/completions", json={"prompt": "a", "model": "gpt-4"})
            assert wrong.status_code == 404
            assert wrong.json()["error"]["type"] == "NotFoundError"


@pytest.mark.torch
def test_a_trainer_reads_batches_through_a_data_loader(tmp_path):
    import torch

    tokenizer = Tokenizer.from_preset("gpt2")
    with TokenFilesWriter(
        tmp_path / "tokens", plan_token_files(tokenizer, end_of_document="")
    ) as writer:
        for story in STORIES:
            writer.append(tokenizer.encode(story + END))
        writer.finish()
    packages = str(Path(torch.__file__).parent.parent)
    printed = run(
        "data_loader.py", tmp_path / "tokens", PYTHONPATH=f"{REPOSITORY}{os.pathsep}{packages}"
    )
    n_ids = sum(len(tokenizer.encode(story + END)) for story in STORIES)
    n_samples = (n_ids - 1) // 16
    assert printed.splitlines() == [
        f"{n_ids} ids, {n_samples} samples, {n_samples // 8 * 8 * 16} targets in full batches",
        f"taken 3, then {n_samples - 3} of epoch 0",
    ]


def test_nanochat_unpickles_its_tokenizer(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(STORIES), encoding="utf-8")
    printed = run("nanochat_tokenizer.py", tmp_path / "texts.txt", 300, tmp_path / "out")
    assert "300 tokens" in printed
    encoding = pickle.loads((tmp_path / "out" / "tokenizer.pkl").read_bytes())
    example = runpy.run_path(str(EXAMPLES / "nanochat_tokenizer.py"))
    # What nanochat's tokenizer calls.
    assert encoding.n_vocab == 300
    assert encoding.special_tokens_set == set(example["SPECIAL_TOKENS"])
    assert encoding.encode_single_token("<|bos|>") == 291
    ranks, specials = encoding._mergeable_ranks, encoding._special_tokens
    theirs = tiktoken.Encoding(
        "x", pat_str=example["PATTERN"], mergeable_ranks=ranks, special_tokens=specials
    )
    texts = [*STORIES, "12345 don't\n\n\n 東京 <|bos|>"]
    batch = encoding.encode_ordinary_batch(texts, num_threads=2)
    assert batch == theirs.encode_ordinary_batch(texts)
    assert [encoding.decode(ids) for ids in batch] == texts
    if "torch is not installed" in printed:
        return
    import torch

    # As nanochat's scripts/tok_train.py makes them.
    special = set(encoding._special_tokens.values())
    lengths = [
        0 if id_ in special else len(encoding.decode_single_token_bytes(id_)) for id_ in range(300)
    ]
    written = torch.load(tmp_path / "out" / "token_bytes.pt")
    assert (written.dtype, written.tolist()) == (torch.int32, lengths)


def test_datatrove_writes_the_ids_of_this_library(tmp_path):
    if not DATATROVE.is_dir():
        pytest.skip("datatrove is not there; make test-integration installs it")
    lines = "".join(
        json.dumps({"text": story, "id": str(i)}) + "\n" for i, story in enumerate(STORIES)
    )
    (tmp_path / "stories.jsonl").write_text(lines, encoding="utf-8")
    tokenizer = Tokenizer.from_preset("gpt2")
    tokenizer.save(tmp_path / "tokenizer.json")
    run(
        "datatrove_tokens.py", tmp_path / "stories.jsonl", tmp_path / "tokenizer.json",
        tmp_path / "tokens", PYTHONPATH=os.pathsep.join(map(str, (REPOSITORY, DATATROVE))),
    )  # fmt: skip
    written = np.fromfile(next((tmp_path / "tokens").glob("*.ds")), np.uint16)
    expected = [id_ for story in STORIES for id_ in tokenizer.encode(story + END)]
    assert written.tolist() == expected
