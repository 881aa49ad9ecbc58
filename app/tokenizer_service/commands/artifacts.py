"""`tokenizer list`, `inspect`, `import`, `promote`, `rollback`, `alias`: the artifacts folder."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tokenizer_core.chat.control_tokens import find_control_tokens
from tokenizer_core.errors import ArtifactCorruptError, ArtifactNotFoundError
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.commands.command_line import (
    CommandError,
    UsageError,
    add_artifacts_dir,
    default_tokenizer,
    open_store,
    resolve_published,
    resolve_tokenizer,
)
from tokenizer_service.commands.outputs import (
    STANDARD_OUTPUT,
    add_html,
    check_outputs,
    print_json,
    write_output,
)
from tokenizer_service.commands.tokenizer_arguments import TOKENIZER, load_one
from tokenizer_service.commands.vocabulary_files import (
    add_reading_options,
    read_files,
    read_source,
    with_chat_option,
    with_control_option,
)

_MOST_SPECIAL_TOKENS: Final = 20


def add_parsers(subcommands: Any) -> None:
    """Add the six subcommands."""
    for add in (_add_list, _add_inspect, _add_import, _add_promote, _add_rollback, _add_alias):
        add(subcommands)


def _add_list(subcommands: Any) -> None:
    listing = subcommands.add_parser(
        "list",
        description="List every published tokenizer; * marks the one being served.",
        epilog="examples:\n  tokenizer list\n  tokenizer list --json",
    )
    _add_common(listing, run_list, "as JSON")


def _add_inspect(subcommands: Any) -> None:
    inspect = subcommands.add_parser(
        "inspect",
        description="Verify a tokenizer and show what it is and where it comes from.",
        epilog=(
            "examples:\n"
            "  tokenizer inspect starter\n"
            "  tokenizer inspect news@20261121T041500Z-1a2b3c4d --longest 50\n"
            "  tokenizer inspect starter --json | jq .training\n"
            "  tokenizer inspect gpt2 my-model/tokenizer.json\n"
            "  tokenizer inspect news-8000 news-16000 --html news.html"
        ),
    )
    inspect.add_argument(
        "tokenizers",
        nargs="+",
        metavar="TOKENIZER",
        help=f"{TOKENIZER}; NAME alone is its newest version, `active` the one that serves",
    )
    inspect.add_argument(
        "--longest",
        type=int,
        default=10,
        metavar="N",
        help="number of longest tokens to show (default: 10)",
    )
    add_html(inspect, "the report of their training as a page")
    _add_common(inspect, run_inspect, "print the manifest of a published one as JSON")


def _add_import(subcommands: Any) -> None:
    importing = subcommands.add_parser(
        "import",
        description=(
            "Read a vocabulary file and publish it as an artifact. The format is seen from the\n"
            "content: .tiktoken, tokenizer.json, Mistral's tekken.json, SentencePiece's\n"
            "tokenizer.model, GPT-2's vocab.json with merges.txt, or pickles of a vocabulary and\n"
            "its merges."
        ),
        epilog=(
            "A .tiktoken file says neither how text is split nor which tokens are special. The\n"
            "published files are recognised by their sha256. That of o200k_base also belongs to\n"
            "o200k_harmony, which needs --preset. For another file give both; a wrong pattern\n"
            "would give other ids without any error. An expression is read as its library reads\n"
            "it: for a .tiktoken file as tiktoken. Without FILE, --preset uses the file of\n"
            "tokenizer pull.\n\n"
            "examples:\n"
            "  tokenizer import tokenizer.json --name llama3\n"
            "  tokenizer import tekken.json --name mistral\n"
            "  tokenizer import tokenizer.model --name mistral-7b\n"
            "  tokenizer import vocab.json merges.txt --name gpt2 --special '<|endoftext|>=50256'\n"
            "  tokenizer import cl100k_base.tiktoken --name cl100k\n"
            "  tokenizer import --preset o200k_harmony --name harmony\n"
            "  tokenizer import my.tiktoken --name my --pattern gpt2 --special '<|end|>=50000'\n"
            "  tokenizer import Qwen3-8B --name qwen3 --chat-template tool_use=tools.jinja\n"
            "  tokenizer import starter --name starter-chat --chat-template chat.jinja\n"
            "\nthen serve it:  TOKENIZER_DEFAULT=cl100k tokenizer serve"
        ),
    )
    importing.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a file, vocabulary and merges, a model folder, or a published NAME[@VERSION]",
    )
    importing.add_argument("--name", required=True, help="name to publish it under")
    add_reading_options(importing)
    importing.add_argument(
        "--max-model-len",
        type=int,
        metavar="N",
        help="most tokens of the served model, as max_model_len of POST /tokenize (default: -1)",
    )
    importing.add_argument(
        "--control-token",
        action="append",
        default=[],
        metavar="TOKEN",
        help="an added token that only a chat template may write, beside the special tokens and "
        "those in the literals of the templates; repeat for more",
    )
    importing.add_argument("--promote", action="store_true", help="promote it")
    _add_common(importing, run_import, "print what was published as JSON")


def _add_promote(subcommands: Any) -> None:
    promote = subcommands.add_parser(
        "promote",
        description=(
            "Choose the version that serves requests that name no tokenizer. Running servers on\n"
            "this artifacts folder follow within a second. tokenizer rollback undoes it."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer promote news\n"
            "  tokenizer promote news@20261121T041500Z-1a2b3c4d"
        ),
    )
    promote.add_argument(
        "tokenizer", metavar="NAME[@VERSION]", help="NAME alone is its newest version"
    )
    _add_common(promote, run_promote, "print the active and the previous tokenizer as JSON")


def _add_rollback(subcommands: Any) -> None:
    rollback = subcommands.add_parser(
        "rollback",
        description=(
            "Serve again what was served before the last promotion; a second time undoes the\n"
            "first. With a NAME, which must be the one being served, go to the version of it that\n"
            "was published before; each time one further back."
        ),
        epilog="examples:\n  tokenizer rollback\n  tokenizer rollback news",
    )
    rollback.add_argument(
        "name", nargs="?", metavar="NAME", help="go back to an older version of this tokenizer"
    )
    _add_common(rollback, run_rollback, "print the active and the previous tokenizer as JSON")


def _add_alias(subcommands: Any) -> None:
    alias = subcommands.add_parser(
        "alias",
        description=(
            "Let clients of other servers, which can only name a model, choose a tokenizer: a\n"
            "request whose `model` is ALIAS gets NAME, in the version of it that was promoted\n"
            "last, or its newest. Without arguments, list the aliases. Running servers follow\n"
            "within a second."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer alias qwen3 Qwen/Qwen3-8B\n"
            "  tokenizer alias\n"
            "  tokenizer alias --remove Qwen/Qwen3-8B"
        ),
    )
    alias.add_argument("name", nargs="?", metavar="NAME", help="name of a published tokenizer")
    alias.add_argument(
        "alias", nargs="?", metavar="ALIAS", help="1 to 200 printable ASCII characters"
    )
    alias.add_argument("--remove", metavar="ALIAS", help="remove this alias; its tokenizer stays")
    _add_common(alias, run_alias, "print the aliases as JSON")


def _add_common(parser: argparse.ArgumentParser, run: Any, json_about: str) -> None:
    parser.add_argument("--json", action="store_true", help=json_about)
    add_artifacts_dir(parser)
    parser.set_defaults(run=run)


def run_list(arguments: argparse.Namespace) -> None:
    """Print every version, newest last; then fail if the active one, or the pointer, is damaged."""
    store = open_store(arguments)
    damage: ArtifactCorruptError | None = None
    active = None
    try:
        active = store.active() or store.resolve(default_tokenizer())
    except ArtifactNotFoundError:
        pass  # the default does not exist yet
    except ArtifactCorruptError as error:
        damage = error
    refs = store.list()
    if arguments.json:
        rows = [
            {"name": r.name, "version": r.version, "digest": r.digest, "active": r == active}
            for r in refs
        ]
        print(json.dumps(rows))
    elif not refs:
        print("no tokenizer yet; see tokenizer train --help and tokenizer import --help")
    else:
        for ref in refs:
            print(f"{'*' if ref == active else ' '} {ref}  {ref.digest[:16]}")
    if damage is not None:
        raise damage


def run_inspect(arguments: argparse.Namespace) -> None:
    """Verify tokenizers; print or write what is known of them."""
    _check_inspect(arguments)
    inspected = {}
    for word in arguments.tokenizers:
        tokenizer, ref, _ = load_one(arguments, word)
        if ref is not None:
            store, _ = resolve_tokenizer(arguments, word)
            manifest = json.loads(store.read_manifest(ref).to_json())
            inspected[str(ref)] = tokenizer.spec, manifest
        elif arguments.json:
            raise CommandError(
                f"{word} is not published, so it has no manifest: leave out --json, or publish it "
                f"(tokenizer import)"
            )
        else:
            inspected[word] = tokenizer.spec, {"chat_templates": tokenizer.spec.chat.record()}
    if arguments.html:
        _write_training_page(arguments, inspected)
    for name, (spec, manifest) in inspected.items():
        if arguments.json:
            print(json.dumps(manifest, indent=2))
        elif arguments.html != STANDARD_OUTPUT:
            _print_inspected(name, spec, manifest, arguments.longest)


def _check_inspect(arguments: argparse.Namespace) -> None:
    if arguments.json and len(arguments.tokenizers) > 1:
        raise UsageError("--json prints the manifest of one tokenizer; name only one")
    if arguments.html:
        check_outputs([arguments.html], [])
        if arguments.html == STANDARD_OUTPUT and arguments.json:
            raise UsageError("--json and --html - both print; write one of them to a file")


def _write_training_page(
    arguments: argparse.Namespace, inspected: dict[str, tuple[TokenizerSpec, Any]]
) -> None:
    # Imported here because most runs write no page.
    from tokenizer_core.evaluation.pages import render_training_page

    runs = {name: manifest.get("training") or {} for name, (_, manifest) in inspected.items()}
    for name, run in runs.items():
        if not run.get("curve"):
            raise CommandError(
                f"{name} has no report of its training: it was imported. tokenizer report measures "
                f"any tokenizer"
            )
    write_output(arguments.html, render_training_page(runs).encode())


def _print_inspected(
    name: str, spec: TokenizerSpec, manifest: dict[str, Any], n_longest: int
) -> None:
    from tokenizer_core.evaluation.measures import longest_tokens  # most runs do not need it

    print(f"{name}\n  digest       {spec.fingerprint}")
    for label, value in _describe(spec, manifest):
        print(f"  {label:<12} {value}")
    print(f"  longest tokens, of {len(spec.vocab)}:")
    for id_, token in longest_tokens(spec, n_longest):
        print(f"  {id_:>8}  {len(token):>4} bytes  {token.decode(errors='replace')!r}")


def _describe(spec: TokenizerSpec, manifest: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        *([("made", manifest["created_at"])] if "created_at" in manifest else []),
        ("kind", f"{spec.kind}, {len(spec.vocab)} tokens, largest id {spec.largest_id}"),
        ("pattern", f"{spec.pattern.name} ({spec.unicode_tables})"),
        *_describe_dialect(spec),
        *_describe_missing(spec),
        *([("normalizer", spec.normalizer.name)] if spec.normalizer.name != "none" else []),
        ("special", _describe_special_tokens(spec)),
    ]
    gaps = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spec.gaps())
    if gaps:
        rows.append(("no token at", gaps))
    for name, record in (manifest.get("chat_templates") or {}).get("templates", {}).items():
        shown = f"{name}  {record['size_bytes']} bytes  sha256 {record['sha256'][:16]}"
        rows.append(("chat", shown))
    control = find_control_tokens(spec)
    written = [t for t in spec.added_tokens if t.content in control and not t.special]
    if written:
        rows.append(("control", ", ".join(f"{t.content} = {t.id}" for t in written)))
    if manifest.get("command"):
        rows.append(("made by", manifest["command"]))
    training = manifest.get("training") or {}
    if training:
        seconds = training["seconds_counting"] + training["seconds_learning"]
        per_token = f"{training['bytes_per_token']:.3f} bytes per token there"
        rows.append(("trained", f"{training['n_bytes']} bytes in {seconds:.1f} s, {per_token}"))
        if training.get("stopped_early"):
            rows.append(("ended early", training["stopped_early"]))
    for source in manifest.get("provenance") or ():
        digest = str(source.get("sha256"))[:16]
        shown = f"{source.get('name')}  {source.get('size_bytes')} bytes  sha256 {digest}"
        rows.append(("corpus", shown))
    return rows


def _describe_special_tokens(spec: TokenizerSpec) -> str:
    """The first of them, because DeepSeek has a thousand; `--json` has all."""
    special = [token for token in spec.added_tokens if token.special]
    flags = [f" ({', '.join(token.flags)})" if token.flags else "" for token in special]
    shown = [f"{t.content} = {t.id}{flag}" for t, flag in zip(special, flags, strict=True)]
    more = len(shown) - _MOST_SPECIAL_TOKENS
    if more > 0:
        shown[_MOST_SPECIAL_TOKENS:] = [f"and {more} more (--json shows all)"]
    return ", ".join(shown) or "none"


def _describe_dialect(spec: TokenizerSpec) -> list[tuple[str, str]]:
    if spec.pattern.is_plain:
        return []
    rule = "dropped; decoding does not give it back" if spec.pattern.drops else "kept"
    return [("dialect", spec.pattern.dialect), ("unmatched", f"text without a match is {rule}")]


def _describe_missing(spec: TokenizerSpec) -> list[tuple[str, str]]:
    if spec.missing is None:
        return []
    values = ", ".join(f"0x{byte:02x}" for byte in spec.missing.values)
    rule = "left out" if spec.missing.unk_id is None else f"encoded as id {spec.missing.unk_id}"
    shown = f"the bytes {values}, which are {rule}; decoding does not give them back"
    return [("no token for", shown)]


def run_import(arguments: argparse.Namespace) -> None:
    """Read a tokenizer from files, verify it and publish it."""
    if not arguments.files and not arguments.preset:
        raise UsageError(
            "name the files to import, or --preset for one that tokenizer pull fetched"
        )
    if arguments.files:
        spec = read_source(arguments.files, arguments, name=arguments.name, has_packaged=True)
    else:
        spec = read_files([], arguments, name=arguments.name)
    spec = with_control_option(with_chat_option(spec, arguments), arguments)
    if arguments.max_model_len is not None:
        spec = spec.with_chat(replace(spec.chat, max_model_len=arguments.max_model_len))
    store = open_store(arguments)
    ref = store.publish(spec, name=arguments.name, command=command_text())
    if arguments.promote:
        store.promote(ref)
    if arguments.json:
        print_json({**_identity(ref), "active": arguments.promote})
        return
    print(f"published {ref}  ({len(spec.vocab)} tokens, pattern {spec.pattern.name})")
    if arguments.promote:
        print("it now serves")
    else:
        print(f"serve it:  tokenizer promote {ref.name}")


def run_promote(arguments: argparse.Namespace) -> None:
    """Verify the version, then make it the active one."""
    store = open_store(arguments)
    _promote(store, resolve_published(store, arguments.tokenizer), as_json=arguments.json)


def run_rollback(arguments: argparse.Namespace) -> None:
    """Promote the tokenizer that was active before, or the previous version of a name."""
    store = open_store(arguments)
    ref = _version_before(store, arguments.name) if arguments.name else _served_before(store)
    _promote(store, ref, as_json=arguments.json)


def run_alias(arguments: argparse.Namespace) -> None:
    """Add or remove an alias, or list all."""
    if (arguments.name is None) != (arguments.alias is None):
        raise UsageError("name the tokenizer and the alias: tokenizer alias NAME ALIAS")
    if arguments.name is not None and arguments.remove is not None:
        raise UsageError("add an alias or remove one, in two commands")
    store = open_store(arguments)
    if arguments.name is not None:
        store.add_alias(arguments.alias, arguments.name)
    if arguments.remove is not None:
        store.remove_alias(arguments.remove)
    aliases = store.aliases()
    if arguments.json:
        print_json(aliases)
    elif arguments.remove is not None:
        print(f"{arguments.remove} is no alias any more")
    elif arguments.name is not None:
        print(f"{arguments.alias} is {arguments.name}")
    else:
        print(
            "\n".join(f"{alias}  {name}" for alias, name in sorted(aliases.items())) or "no alias"
        )


def _served_before(store: Artifacts) -> ArtifactRef:
    before = store.previously_active()  # first, because the active version may be damaged
    if before is not None:
        return before
    active = store.active()
    if active is None:
        raise CommandError(
            "nothing was promoted before; tokenizer list shows the published tokenizers"
        )
    try:
        default = store.resolve(default_tokenizer())
    except ArtifactNotFoundError as error:
        raise CommandError(f"{active} is the first that was promoted, and {error}") from None
    if default == active:
        raise CommandError(f"{active} is all that was ever served; promote another version")
    return default


def _version_before(store: Artifacts, name: str) -> ArtifactRef:
    if "@" in name:
        raise UsageError(f"rollback takes a name alone; for one version: tokenizer promote {name}")
    if name not in store.names():
        resolve_published(store, name)  # raises what there is
    active = store.active()
    if active is None:
        with suppress(ArtifactNotFoundError):
            active = store.resolve(default_tokenizer())
    if active is None:
        raise CommandError(
            f"nothing was promoted before; tokenizer promote {name} serves its newest version"
        )
    if active.name != name:
        raise CommandError(
            f"{active} is being served, and no version of {name}; tokenizer promote {name} does it"
        )
    earlier = [ref for ref in store.versions(name) if ref.version < active.version]
    if not earlier:
        raise CommandError(f"{active} is the oldest version of {name}; there is none before it")
    return earlier[-1]


def _promote(store: Artifacts, ref: ArtifactRef, *, as_json: bool) -> None:
    previous = store.promote(ref)
    if as_json:
        print_json({"active": _identity(ref), "previous": previous and _identity(previous)})
        return
    print(f"{ref} now serves")
    if previous is not None and previous != ref:
        print(f"back again:  tokenizer promote {previous}")


def _identity(ref: ArtifactRef) -> dict[str, str]:
    return {"name": ref.name, "version": ref.version, "digest": ref.digest}


def command_text() -> str:
    """The command line as manifests record it: file names without their folders."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    # A file name may be invalid UTF-8, which a manifest cannot hold.
    return " ".join(["tokenizer", *words]).encode(errors="backslashreplace").decode()
