"""Build the fuzz targets of this folder and run them: `make fuzz ARGS="--seconds 300 encode"`.

Needs the toolchain the engine is built with and a C++ compiler for libFuzzer; `cargo fuzz` is not
needed. Failures are written to `artifacts/`, inputs worth keeping to `corpus/`; both stay out of
git. Where the public rank files are (TOKENIZER_TEST_DATA), `encode` and `cache` use them too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.adversarial import adversarial_texts  # noqa: E402 - found by the line above

TARGETS = [path.stem for path in sorted((HERE / "fuzz_targets").glob("*.rs"))]

# What `cargo fuzz` passes as well: coverage for libFuzzer.
RUST_FLAGS = " ".join(
    (
        "--cfg fuzzing",
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
    )
)


def host_triple() -> str:
    answer = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"^host: (.+)$", answer, flags=re.MULTILINE)
    assert found  # rustc says it
    return found[1]


def build(sanitizer: str) -> Path:
    """The folder with the built targets."""
    triple = host_triple()
    target = HERE / "target" / sanitizer
    # With --target the flags do not reach build scripts.
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", triple]
    if sanitizer == "thread":
        # It has to see the standard library's locks as well.
        command[1:1] = ["+nightly"]
        command.append("-Zbuild-std")
    subprocess.run(
        [*command, "--target-dir", target],
        cwd=HERE,
        check=True,
        # The sanitizer's flag is unstable; the stable compiler takes it with this.
        env=os.environ
        | {"RUSTFLAGS": f"{RUST_FLAGS} -Zsanitizer={sanitizer}", "RUSTC_BOOTSTRAP": "1"},
    )
    return target / triple / "release"


def write_seeds(target: str, folder: Path) -> None:
    """Texts that distinguish tokenizers, in the form that the targets read."""
    folder.mkdir(parents=True, exist_ok=True)
    choices = {"scan": 0, "encode": 4}.get(target)
    if choices is None:
        return
    for number, text in enumerate(adversarial_texts(n_random=400, seed=11)):
        head = bytes(number * (index + 3) % 256 for index in range(choices))
        (folder / f"seed-{number:03}").write_bytes(head + b"\0" + text.encode())


def run(target: str, binary: Path, seconds: int, max_len: int) -> bool:
    """Whether nothing was found."""
    corpus, artifacts = HERE / "corpus" / target, HERE / "artifacts" / target
    write_seeds(target, corpus)
    artifacts.mkdir(parents=True, exist_ok=True)
    data = os.environ.get("TOKENIZER_TEST_DATA", REPOSITORY.parent / "shared" / "data")
    done = subprocess.run(
        [
            binary,
            corpus,
            f"-max_total_time={seconds}",
            f"-max_len={max_len}",
            f"-artifact_prefix={artifacts}/",
            "-rss_limit_mb=4096",
            "-timeout=60",
            "-len_control=20",
            "-print_final_stats=1",
            "-verbosity=0",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | {"TOKENIZER_FUZZ_RANKS": str(Path(data) / "vocab")},
    )
    said = done.stderr
    executions = re.search(r"number_of_executed_units: +(\d+)", said)
    n_inputs = len(list(corpus.iterdir()))
    n_executions = f"{int(executions[1]):,}" if executions else "?"
    verdict = "nothing found" if done.returncode == 0 else f"FOUND, see {artifacts}"
    print(f"{target:8} {n_executions:>12} executions, {n_inputs:5} inputs kept: {verdict}")
    if done.returncode:
        print("\n".join(said.splitlines()[-60:]))
    sys.stdout.flush()
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET", help=f"{TARGETS}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument(
        "--sanitizer",
        choices=("address", "thread"),
        default="address",
        help="thread needs a nightly toolchain with rust-src (default: address)",
    )
    parser.add_argument("--max-len", type=int, default=1000, help="bytes of an input at most")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"no target {sorted(unknown)}; there are {TARGETS}")
    folder = build(arguments.sanitizer)
    found_nothing = [
        run(target, folder / target, arguments.seconds, arguments.max_len)
        for target in arguments.targets
    ]
    return 0 if all(found_nothing) else 1


if __name__ == "__main__":
    sys.exit(main())
