"""What the commands share whose work may be done by many machines: by whom, and where it is kept.

It stands alone because only they pay for what it imports, and only when a run begins.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.command_line import UsageError

if TYPE_CHECKING:
    from tokenizer_core.corpus import TokenManifest
    from tokenizer_core.parallel import Executor


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add who works, and where what is done is kept."""
    parser.add_argument(
        "--run-storage",
        metavar="PLACE",
        help="a folder all workers share, or s3://bucket/prefix: work in shards that are kept "
        "there, so that the same command goes on after an interruption",
    )
    parser.add_argument(
        "--executor",
        choices=["local", "ray"],
        default="local",
        help="who works on the shards: processes here, or a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="HOST:PORT, auto or local (default: auto, the cluster of this machine)",
    )


def check_run_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError unless these options go together."""
    if arguments.ray_address is not None and arguments.executor != "ray":
        raise UsageError("--ray-address needs --executor ray")
    if arguments.workers is not None and arguments.executor == "ray":
        raise UsageError("--workers is for processes here; on a Ray cluster its processors decide")
    if arguments.executor == "ray" and arguments.run_storage is None:
        raise UsageError(
            "--executor ray needs --run-storage: a folder that all nodes share, or s3://..."
        )


def check_run_inputs(arguments: argparse.Namespace) -> None:
    """Raise UsageError where an input can be read in a run only, and there is none."""
    are_paths = all(isinstance(each, Path) for each in arguments.inputs)
    if arguments.run_storage is None and not are_paths:
        raise UsageError("an address as INPUT needs --run-storage; or copy it to the disk first")


@contextlib.contextmanager
def open_executor(arguments: argparse.Namespace) -> Iterator[Executor]:
    """Who was asked for; what it holds ends with the context.

    Raises:
        WorkerProcessError: Ray is not installed, or no cluster is there.
    """
    from tokenizer_core.parallel import LocalExecutor

    if arguments.executor == "local":
        from tokenizer_core.training.count_pretokens import count_processors

        yield LocalExecutor(arguments.workers or count_processors())
        return
    from tokenizer_core.parallel.ray_cluster import connect_to_ray

    with connect_to_ray(arguments.ray_address or "auto") as executor:
        yield executor


def encode_in_run(arguments: argparse.Namespace, *what: Any, **how: Any) -> TokenManifest:
    """`encode_distributed` with who was asked for, where it was asked for."""
    from tokenizer_core.distributed import encode_distributed

    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers must be at least 1")
    if arguments.scratch is not None:
        arguments.scratch.mkdir(parents=True, exist_ok=True)
    with open_executor(arguments) as executor:
        return encode_distributed(
            *what,
            storage=arguments.run_storage,
            executor=executor,
            scratch_folder=arguments.scratch,
            **how,
        )
