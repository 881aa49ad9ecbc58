"""`tokenizer list`, `inspect`, `import`, `promote`: what stands in the artifacts folder.

May import `command_line`, `vocabulary_files` and the core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from app.commands.command_line import add_artifacts_dir, open_store
from app.commands.vocabulary_files import add_reading_options, read_files, special_options
from tokenizer_core.spec import TokenizerSpec


def add_parsers(subcommands: Any) -> None:
    """Add the four subcommands."""
    listing = subcommands.add_parser(
        "list",
        help="list the tokenizers and their versions",
        description="List every published tokenizer; * marks the one being served.",
        epilog="examples:\n  tokenizer list\n  tokenizer list --json",
    )
    listing.add_argument("--json", action="store_true", help="as JSON")
    add_artifacts_dir(listing)
    listing.set_defaults(run=run_list)

    inspect = subcommands.add_parser(
        "inspect",
        help="show a tokenizer: manifest, special tokens, longest tokens",
        description="Verify a published tokenizer and show what it is and where it comes from.",
        epilog=(
            "examples:\n"
            "  tokenizer inspect starter\n"
            "  tokenizer inspect news@20261121T041500Z-1a2b3c4d --longest 50\n"
            "  tokenizer inspect starter --json | jq .training"
        ),
    )
    inspect.add_argument("tokenizer", metavar="NAME[@VERSION]")
    inspect.add_argument("--longest", type=int, default=10, metavar="N", help="tokens to show (10)")
    inspect.add_argument("--json", action="store_true", help="the manifest as JSON")
    add_artifacts_dir(inspect)
    inspect.set_defaults(run=run_inspect)

    importing = subcommands.add_parser(
        "import",
        help="publish a tokenizer from somebody else's file",
        description=(
            "Read a vocabulary file and publish it as an artifact. The format is seen from the\n"
            "content: .tiktoken, tokenizer.json, GPT-2's vocab.json with merges.txt, or pickles\n"
            "of a vocabulary and its merges."
        ),
        epilog=(
            "A .tiktoken file says neither how text is split nor which tokens are special, so\n"
            "both must be given; a wrong pattern would give other ids without any error.\n\n"
            "examples:\n"
            "  tokenizer import tokenizer.json --name llama3\n"
            "  tokenizer import vocab.json merges.txt --name gpt2 --special '<|endoftext|>=50256'\n"
            "  tokenizer import cl100k_base.tiktoken --name cl100k --pattern cl100k \\\n"
            + " \\\n".join(special_options("cl100k", indent=6))
            + "\n\nthen serve it:  TOKENIZER_DEFAULT=cl100k tokenizer serve"
        ),
    )
    importing.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="one file, or vocabulary and merges"
    )
    importing.add_argument("--name", required=True, help="name to publish it under")
    add_reading_options(importing)
    importing.add_argument("--promote", action="store_true", help="serve it from now on")
    add_artifacts_dir(importing)
    importing.set_defaults(run=run_import)

    promote = subcommands.add_parser(
        "promote",
        help="choose what is served",
        description=(
            "Make a version the one that answers requests which name none. Running servers on\n"
            "this artifacts folder follow within a second; an earlier version rolls back."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer promote news\n"
            "  tokenizer promote news@20261121T041500Z-1a2b3c4d"
        ),
    )
    promote.add_argument("tokenizer", metavar="NAME[@VERSION]")
    add_artifacts_dir(promote)
    promote.set_defaults(run=run_promote)


def run_list(arguments: argparse.Namespace) -> None:
    """Print every version, newest last."""
    store = open_store(arguments)
    active = store.active()
    refs = store.list()
    if arguments.json:
        rows = [
            {"name": r.name, "version": r.version, "digest": r.digest, "active": r == active}
            for r in refs
        ]
        print(json.dumps(rows))
        return
    if not refs:
        print("no tokenizer yet; see tokenizer train --help and tokenizer import --help")
    for ref in refs:
        print(f"{'*' if ref == active else ' '} {ref}  {ref.digest[:16]}")


def run_inspect(arguments: argparse.Namespace) -> None:
    """Print manifest and longest tokens of one version, whose files are verified first."""
    store = open_store(arguments)
    ref = store.resolve(arguments.tokenizer)
    spec = store.open(ref)
    manifest = json.loads(store.read_manifest(ref).to_json())
    if arguments.json:
        print(json.dumps(manifest, indent=2))
        return
    print(f"{ref}\n  digest       {ref.digest}")
    for label, value in _describe(spec, manifest):
        print(f"  {label:<12} {value}")
    print(f"  longest tokens, of {len(spec.vocab)}:")
    specials = set(spec.special_tokens.values())
    longest = sorted(
        (item for item in spec.vocab.items() if item[0] not in specials),
        key=lambda item: (-len(item[1]), item[0]),
    )
    for id_, token in longest[: max(0, arguments.longest)]:
        print(f"  {id_:>8}  {len(token):>4} bytes  {token.decode(errors='replace')!r}")


def _describe(spec: TokenizerSpec, manifest: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("made", manifest["created_at"]),
        ("kind", f"{spec.kind}, {len(spec.vocab)} tokens, largest id {spec.largest_id}"),
        ("pattern", f"{spec.pattern.name} ({spec.unicode_tables})"),
        ("special", ", ".join(f"{t} = {i}" for t, i in spec.special_tokens.items()) or "none"),
    ]
    gaps = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spec.gaps())
    if gaps:
        rows.append(("no token at", gaps))
    if manifest.get("command"):
        rows.append(("made by", manifest["command"]))
    training = manifest.get("training") or {}
    if training:
        rows.append(
            (
                "trained",
                f"{training['n_bytes']} bytes in "
                f"{training['seconds_counting'] + training['seconds_learning']:.1f} s, "
                f"{training['bytes_per_token']:.3f} bytes per token there",
            )
        )
        if training.get("stopped_early"):
            rows.append(("ended early", training["stopped_early"]))
    for source in manifest.get("provenance") or ():
        rows.append(
            (
                "corpus",
                f"{source.get('name')}  {source.get('size_bytes')} bytes  "
                f"sha256 {str(source.get('sha256'))[:16]}",
            )
        )
    return rows


def run_import(arguments: argparse.Namespace) -> None:
    """Read, verify and publish."""
    spec = read_files(arguments.files, arguments, name=arguments.name)
    store = open_store(arguments)
    ref = store.publish(spec, name=arguments.name, command=command_text())
    print(f"published {ref}  ({len(spec.vocab)} tokens, pattern {spec.pattern.name})")
    if arguments.promote:
        store.promote(ref)
        print("it is the one being served from now on")
    else:
        print(f"serve it:  tokenizer promote {ref.name}")


def run_promote(arguments: argparse.Namespace) -> None:
    """Write the pointer after verifying the version."""
    store = open_store(arguments)
    ref = store.resolve(arguments.tokenizer)
    store.open(ref)
    previous = store.promote(ref)
    print(f"{ref} is the one being served from now on")
    if previous is not None and previous != ref:
        print(f"back again:  tokenizer promote {previous}")


def command_text() -> str:
    """The command line as it is recorded in manifests: file names without their folders."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["tokenizer", *words])
