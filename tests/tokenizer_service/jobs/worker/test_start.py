"""What the child of a job does before it imports what the job needs."""

import subprocess
import sys

_PACKAGES = ("tokenizer_service", "tokenizer_core", "tokenizer_client", "numpy", "pydantic")


def test_a_child_gives_way_before_it_imports_what_a_job_needs() -> None:
    code = "import sys, tokenizer_service.jobs.worker.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name for name in done.stdout.split() if name.split(".")[0] in _PACKAGES}
    assert imported == {
        "tokenizer_service",
        "tokenizer_service.jobs",
        "tokenizer_service.jobs.worker",
        "tokenizer_service.jobs.worker.__main__",
    }
