"""Records what releases of transformers give for the folders of `model_folders`:

    python -m tests.tokenizer_core.formats.record_folder_ids PYTHON ...

Each PYTHON is an interpreter with one of the releases. The file that it writes, `folder_ids.json`,
is what `test_model_folder` compares with: for each release and folder the ids of each text, with
the special tokens around it, then the ids and type ids of a pair of texts; or null where the
release refuses the folder.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).with_name("folder_ids.json")
TEXTS = (
    "low lower",
    " low  12 34 a1\n lo",
    "<extra>low <tool> low<tool> <bos>low",
    "e\u0301 \u212b don't \u4e2d",
    "<pad> <|padding|> <UNK><unk>",
    "<s>low <mask> lower</s>a</s> b",
)
PAIR = ("low lower", "12")


def _reply():
    """In a process with transformers: the ids for the folders that standard input names."""
    import transformers

    found = {}
    for name, folder in json.load(sys.stdin).items():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            found[name] = [tokenizer(text)["input_ids"] for text in TEXTS]
            pair = tokenizer(*PAIR, return_token_type_ids=True)  # last: it changes CodeLlama's ids
            found[name] += [pair["input_ids"], pair["token_type_ids"]]
        except Exception:
            found[name] = None
    print(json.dumps({transformers.__version__: found}))


def main(pythons):
    """Write the file."""
    from tests.tokenizer_core.formats.model_folders import ACCEPTED, DIFFERING, make_folder

    recorded = {}
    with tempfile.TemporaryDirectory() as parent:
        folders = {
            name: str(make_folder(Path(parent, str(number)), **arguments))
            for number, (name, arguments) in enumerate({**ACCEPTED, **DIFFERING}.items())
        }
        for python in pythons:
            command = [python, __file__, "--reply"]
            reply = subprocess.run(
                command, input=json.dumps(folders).encode(), capture_output=True, check=True
            )
            recorded |= json.loads(reply.stdout.splitlines()[-1])
    releases = ",\n".join(
        f"{json.dumps(release)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(ids)}" for name, ids in found.items())
        + "\n}"
        for release, found in sorted(recorded.items())
    )
    RECORDED.write_text(f"{{\n{releases}\n}}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--reply"]:
        _reply()
    else:
        main(sys.argv[1:])
