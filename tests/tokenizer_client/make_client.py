"""Makes the blocking modules of the client from the awaiting ones, by dropping `await`.

`python -m tests.tokenizer_client.make_client` writes `client.py` from `async_client.py`, and each
other module `x.py` from `async_x.py`. With `--check`, as in `make check`, it compares them.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "tokenizer_client").glob("async_*.py"))

_REPLACED = (
    (r"AsyncClient: every call of the service as a method to await",
     "Client: every call of the service as a blocking method"),
    (r"The service, awaited, from one event loop",
     "The service, blocking; any number of threads may share one client"),
    (r"Use `async with`, or `aclose`", "Use the client in a `with`, or close it"),
    (r"\(await (.*\))\)(?=\.)", r"\1"),
    (r"\bawait |\basync (?=def|with|for)", ""),
    (r"asyncio\.to_thread\(", "operator.call("),
    (r"asyncio\.sleep\(", "time.sleep("),
    (r"import asyncio", "import operator\nimport time"),
    (r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"(?<!for )\b(_?)Async(?=[A-Z])", r"\1"),  # not in "for AsyncClient also ..."
    (r"\basync_(?=exchange)|(?<=pieces)_async|\basync(?=contextmanager)", ""),
    (r"\ba(?=iter_bytes|clos)|(?<=__)a(?=enter|exit)", ""),
)  # fmt: skip


def make(source):
    text = source.read_text(encoding="utf-8")
    for pattern, new in _REPLACED:
        text = re.sub(pattern, new, text)
    text = f"# Made from {source.name} by tests/tokenizer_client/make_client.py.\n{text}"
    for arguments in (("check", "--select=I,F401", "--fix-only", "-q"), ("format",)):
        command = [sys.executable, "-m", "ruff", *arguments, f"--stdin-filename={source}", "-"]
        text = subprocess.check_output(command, input=text, encoding="utf-8")
    return text


if __name__ == "__main__":
    for source in SOURCES:
        target, made = source.with_name(source.name.removeprefix("async_")), make(source)
        if sys.argv[1:] != ["--check"]:
            target.write_text(made, encoding="utf-8")
        elif target.read_text(encoding="utf-8") != made:
            sys.exit(f"{target.name} is not made from {source.name}: run {__spec__.name}")
