"""The command `tokenizer`, run in a folder with its own artifacts; in this process, for speed."""

import base64
import io
import os
import sys

from tokenizer_service.cli import main

CORPUS = "low low lower newest newest widest widest widest"


class Cli:
    """Runs the command in a folder, and compares its exit code with the expected one."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._patch = folder, monkeypatch
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("TOKENIZER_")]:
            monkeypatch.delenv(name)

    def run(self, *arguments, stdin=b"", code=0, **environment):
        out, error = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", error)
            patch.setattr(sys, "argv", ["tokenizer", *arguments])
            # `serve` passes its options on in the environment; the test's end restores it.
            patch.setenv("TOKENIZER_PORT", "8000")
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                found = main()
            except SystemExit as ended:
                found = int(str(ended.code))
        out.flush()
        written = out.buffer.getvalue()
        assert found == code, (written[:500], error.getvalue())
        return written, error.getvalue()

    def fail(self, *arguments, code=1, stdin=b"", **environment):
        """The only line of an error."""
        _, error = self.run(*arguments, code=code, stdin=stdin, **environment)
        assert error.count("\n") == 1, error
        assert error.startswith("tokenizer")
        return error


def write_tiktoken(path):
    """A file of ranks: the bytes, `lo` and `low`."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"lo", b"low"]
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    path.write_bytes(b"\n".join(lines) + b"\n")
