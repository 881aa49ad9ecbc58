"""Run the targets with Atheris: `make fuzz-python ARGS="--seconds 300 manifest"`.

Each target runs in a separate process on one processor. Findings go to `crashes/` beside this file,
inputs worth keeping to `corpus/`; git ignores both. After a fix, the input goes to `found/TARGET/`,
where the ordinary tests read it.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def fuzz(target, options):
    """Send inputs to one target until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["tokenizer_service", "tokenizer_core"]):
        from tests.fuzz.targets import try_target
    atheris.Setup([sys.argv[0], *options], lambda data: try_target(target, data) and None)
    atheris.Fuzz()


def run(target, seconds):
    """Whether the run had no finding; it begins with the seeds and the earlier findings."""
    from tests.fuzz.targets import FOUND, seeds

    corpus, crashes = HERE / "corpus" / target, HERE / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds()[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    for path in (FOUND / target).glob("*"):
        shutil.copy(path, corpus / f"found-{path.name}")
    print(f"== {target}", flush=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.run", "--only", target),
            str(corpus),
            f"-max_total_time={seconds}",
            f"-artifact_prefix={crashes}/{target}-",
            *("-max_len=8192", "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"),
        ],
        check=False,
    )
    return done.returncode == 0


def main():
    if sys.argv[1:2] == ["--only"]:
        fuzz(sys.argv[2], sys.argv[3:])
        return 0
    from tests.fuzz.targets import NAMES

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{[*NAMES]}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    arguments = parser.parse_args()
    found_nothing = [run(target, arguments.seconds) for target in arguments.targets or NAMES]
    return 0 if all(found_nothing) else 1


if __name__ == "__main__":
    sys.exit(main())
