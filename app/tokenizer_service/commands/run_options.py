"""Options of the commands that can run on many machines: the executor and the checkpoints."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenizer_service.commands.command_line import CommandParser, UsageError

if TYPE_CHECKING:
    from tokenizer_core.corpus import TokenManifest
    from tokenizer_core.parallel import Executor


def add_run_options(parser: CommandParser) -> None:
    """Add the executor, and the folder of the checkpoints."""
    parser.add(
        "--checkpoint-dir FOLDER",
        "work in shards and keep finished ones here, so that the same command continues after "
        "an interruption; a folder that all workers share, or s3://bucket/prefix",
        type=str,
    )
    parser.add(
        "--executor",
        "what works on the shards: local processes or a Ray cluster (default: local)",
        choices=["local", "ray"],
        default="local",
    )
    parser.add(
        "--ray-address ADDRESS",
        "HOST:PORT, auto or local (default: auto, the cluster of this machine)",
    )


def check_run_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError if these options exclude each other."""
    if arguments.ray_address is not None and arguments.executor != "ray":
        raise UsageError("--ray-address needs --executor ray")
    if arguments.workers is not None and arguments.executor == "ray":
        raise UsageError("--workers counts local processes; a Ray cluster uses all its processors")
    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers must be at least 1")
    if arguments.executor == "ray" and arguments.checkpoint_dir is None:
        raise UsageError(
            "--executor ray needs --checkpoint-dir: a folder that all nodes share, or s3://..."
        )


@contextlib.contextmanager
def open_executor(arguments: argparse.Namespace) -> Iterator[Executor]:
    """Start the executor that the arguments name; end it with the context."""
    from tokenizer_core.parallel import LocalExecutor

    if arguments.executor == "local":
        from tokenizer_core.training.count_pretokens import count_processors

        yield LocalExecutor(arguments.workers or count_processors())
        return
    from tokenizer_core.parallel.ray_cluster import connect_to_ray

    with connect_to_ray(arguments.ray_address or "auto") as executor:
        yield executor


def encode_in_run(arguments: argparse.Namespace, *what: Any, **how: Any) -> TokenManifest:
    """Call `encode_distributed` with the executor and the folders of the arguments."""
    from tokenizer_core.distributed import encode_distributed

    if arguments.temp_dir is not None:
        arguments.temp_dir.mkdir(parents=True, exist_ok=True)
    with open_executor(arguments) as executor:
        return encode_distributed(
            *what,
            storage=arguments.checkpoint_dir,
            executor=executor,
            scratch_folder=arguments.temp_dir,
            **how,
        )
