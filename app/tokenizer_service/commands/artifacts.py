"""`tokenizer list`, `inspect`, `import`, `promote`, `rollback`, `remove`, `alias`."""

from __future__ import annotations

import argparse
import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tokenizer_core.chat.control_tokens import find_control_tokens
from tokenizer_core.errors import ArtifactCorruptError, ArtifactNotFoundError
from tokenizer_core.formats.model_folder import ids_label
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import OUTPUT_PARSERS
from tokenizer_service.commands.command_line import (
    DEFAULT_TOKENIZER,
    CommandError,
    CommandParser,
    UsageError,
    add_artifacts_dir,
    add_command,
    default_tokenizer,
    open_store,
    print_how_to_serve,
    publish,
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
    """Add the subcommands."""
    _add_common(add_command(subcommands, run_list), "as JSON")

    inspect = add_command(subcommands, run_inspect)
    about = f"{TOKENIZER}; NAME alone is its newest version, `active` the one that serves"
    inspect.add("tokenizers TOKENIZER", about, nargs="+")
    inspect.add("--longest N", "number of longest tokens to show (default: 10)", default=10)
    add_html(inspect, "the report of their training as a page")
    _add_common(inspect, "print the manifest of a published one as JSON")

    importing = add_command(subcommands, run_import, below="A .tiktoken file")
    about = "a file, vocabulary and merges, ./FOLDER of a model, or a published NAME[@VERSION]"
    importing.add("files FILE", about, type=str, nargs="*")
    importing.add_argument("--name", required=True, help="name to publish it under")
    add_reading_options(importing)
    importing.add(
        "--max-model-len N",
        "most tokens of the served model, as max_model_len of POST /tokenize (default: -1)",
    )
    importing.add(
        "--control-token TOKEN",
        "an added token that only a chat template may write, beside the special tokens and "
        "those in the literals of the templates; repeat for more",
        action="append",
        default=[],
    )
    importing.add(
        "--output-parser NAME",
        f"how the model writes reasoning and tool calls, for the derender routes: "
        f"{', '.join(OUTPUT_PARSERS)}",
        choices=OUTPUT_PARSERS,
    )
    importing.add("--promote", "promote it")
    _add_common(importing, "print what was published as JSON")

    promote = add_command(subcommands, run_promote)
    promote.add("tokenizer NAME[@VERSION]", "NAME alone is its newest version")
    _add_common(promote, "print the active and the previous tokenizer as JSON")

    rollback = add_command(subcommands, run_rollback)
    _add_common(rollback, "print the active and the previous tokenizer as JSON")

    remove = add_command(subcommands, run_remove)
    remove.add("tokenizer NAME@VERSION", "the version to delete")
    _add_common(remove, "print what was removed as JSON")

    alias = add_command(subcommands, run_alias)
    alias.add("name NAME", "name of a published tokenizer", nargs="?")
    alias.add("alias ALIAS", "1 to 200 printable ASCII characters", nargs="?")
    alias.add("--remove ALIAS", "remove this alias; its tokenizer stays")
    _add_common(alias, "print the aliases as JSON")


def _add_common(parser: CommandParser, json_about: str) -> None:
    parser.add("--json", json_about)
    add_artifacts_dir(parser)


def run_list(arguments: argparse.Namespace) -> None:
    """List every published tokenizer; * marks the one being served.

    examples:
      tokenizer list
      tokenizer list --json
    """
    store = open_store(arguments)
    damage: ArtifactCorruptError | None = None
    active = None
    try:
        active = store.active() or store.resolve_default(default_tokenizer())
    except ArtifactNotFoundError:
        pass  # the default does not exist yet
    except ArtifactCorruptError as error:
        damage = error
    refs = store.list()
    if arguments.json:
        print(json.dumps([{**_identity(ref), "active": ref == active} for ref in refs]))
    elif not refs:
        print(
            "no tokenizer yet; see tokenizer train --help and tokenizer import --help. Where no "
            "folder is named, commands use the packaged starter"
        )
    else:
        for ref in refs:
            print(f"{'*' if ref == active else ' '} {ref}  {ref.digest[:16]}")
    if damage is not None:
        raise damage


def run_inspect(arguments: argparse.Namespace) -> None:
    """Verify a tokenizer and show what it is and where it comes from.

    examples:
      tokenizer inspect starter
      tokenizer inspect news@20261121T041500Z-1a2b3c4d --longest 50
      tokenizer inspect starter --json | jq .training
      tokenizer inspect gpt2 my-model/tokenizer.json
      tokenizer inspect news-8000 news-16000 --html news.html
    """
    _check_inspect(arguments)
    inspected = {}
    for word in arguments.tokenizers:
        tokenizer, ref, _ = load_one(arguments, word)
        if ref is not None:
            store, _ = resolve_tokenizer(arguments, str(ref))
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
        if "ids" in source:
            rows.append(("ids of", f"{source['ids']}, for {source.get('name')}  sha256 {digest}"))
            continue
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
    missing = spec.alphabet.missing
    if missing is None:
        return []
    values = ", ".join(f"0x{byte:02x}" for byte in missing.values)
    rule = "left out" if missing.unk_id is None else f"encoded as id {missing.unk_id}"
    shown = f"the bytes {values}, which are {rule}; decoding does not give them back"
    return [("no token for", shown)]


def run_import(arguments: argparse.Namespace) -> None:
    """Read a vocabulary file and publish it as an artifact. The format is seen from the
    content: .tiktoken, tokenizer.json, Mistral's tekken.json, SentencePiece's
    tokenizer.model, GPT-2's vocab.json with merges.txt, or pickles of a vocabulary and
    its merges.

    A .tiktoken file says neither how text is split nor which tokens are special. The
    published files are recognised by their sha256. That of o200k_base also belongs to
    o200k_harmony, which needs --preset. For another file give both; a wrong pattern
    would give other ids without any error. An expression is read as its library reads
    it: for a .tiktoken file as tiktoken. Without FILE, --preset uses the file of
    tokenizer pull.

    examples:
      tokenizer import tokenizer.json --name llama3
      tokenizer import tekken.json --name mistral
      tokenizer import tokenizer.model --name mistral-7b
      tokenizer import vocab.json merges.txt --name gpt2 --special '<|endoftext|>=50256'
      tokenizer import cl100k_base.tiktoken --name cl100k
      tokenizer import --preset o200k_harmony --name harmony
      tokenizer import my.tiktoken --name my --pattern gpt2 --special '<|end|>=50000'
      tokenizer import ./Qwen3-8B --name qwen3 --chat-template tool_use=tools.jinja
      tokenizer import starter --name starter-chat --chat-template chat.jinja

    then serve it:  tokenizer promote cl100k; tokenizer serve
    """
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
    if arguments.output_parser is not None:
        spec = spec.with_chat(replace(spec.chat, output_parser=arguments.output_parser))
    source = [_ids_record(Path(arguments.files[0]), arguments.ids)] if arguments.ids else None
    store = open_store(arguments)
    store.check_may_publish(arguments.name, spec.fingerprint)
    ref, said = publish(store, spec, name=arguments.name, provenance=source)
    if arguments.promote:
        store.promote(ref)
    if arguments.json:
        print_json({**_identity(ref), "active": arguments.promote})
        return
    print(f"{said}  ({len(spec.vocab)} tokens, pattern {spec.pattern.name})")
    if arguments.promote:
        print("it now serves; running services follow within a second")
    else:
        print_how_to_serve(ref)


def _ids_record(source: Path, ids: str) -> dict[str, Any]:
    """The entry of the manifest on whose ids were chosen for a folder."""
    file = source / "tokenizer.json" if source.is_dir() else source
    data = file.read_bytes() if file.is_file() else b""
    return {
        "name": source.name,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "ids": ids_label(ids),
    }


def run_promote(arguments: argparse.Namespace) -> None:
    """Choose the version that serves requests that name no tokenizer, and that commands
    without --tokenizer take. Running servers on this artifacts folder follow within a
    second. tokenizer rollback undoes it.

    examples:
      tokenizer promote news
      tokenizer promote news@20261121T041500Z-1a2b3c4d
    """
    store = open_store(arguments)
    _promote(store, resolve_published(store, arguments.tokenizer), as_json=arguments.json)


def run_rollback(arguments: argparse.Namespace) -> None:
    """Serve again what was served before the last promotion; a second time undoes the
    first.

    example:
      tokenizer rollback
    """
    store = open_store(arguments)
    try:
        ref = store.served_before(default_tokenizer())
    except ArtifactNotFoundError as error:
        error.add_note("choose one: tokenizer promote NAME")
        if DEFAULT_TOKENIZER not in store.names():
            error.add_note(
                "to serve the starter of the package: tokenizer import starter --name starter "
                "--promote"
            )
        raise
    _promote(store, ref, as_json=arguments.json)


def run_remove(arguments: argparse.Namespace) -> None:
    """Delete a version for good. One that is active, that a rollback would serve, that is
    the default or that an alias follows stays. A running server also knows which versions
    its requests and jobs use: DELETE /tokenizers/NAME/VERSION asks it.

    examples:
      tokenizer remove news@20261121T041500Z-1a2b3c4d
    """
    if "@" not in arguments.tokenizer:
        raise UsageError("remove takes one version, NAME@VERSION; tokenizer list shows them")
    store = open_store(arguments)
    ref = resolve_published(store, arguments.tokenizer)
    reason = store.in_use(default_tokenizer()).get(str(ref))
    if reason is not None:
        raise CommandError(f"{ref} is in use: {reason}")
    store.remove(ref.name, ref.version)
    if arguments.json:
        print_json(_identity(ref))
    else:
        print(f"removed {ref}")


def run_alias(arguments: argparse.Namespace) -> None:
    """Let clients of other servers, which can only name a model, choose a tokenizer: a
    request whose `model` is ALIAS gets NAME, in the version of it that was promoted
    last, or its newest. Commands take ALIAS for NAME, which to them is its newest
    version; a note says so if another one serves. Without arguments, list the aliases.
    Running servers follow within a second.

    examples:
      tokenizer alias qwen3 Qwen/Qwen3-8B
      tokenizer alias
      tokenizer alias --remove Qwen/Qwen3-8B
    """
    if (arguments.name is None) != (arguments.alias is None):
        raise UsageError("name the tokenizer and the alias: tokenizer alias NAME ALIAS")
    if arguments.name is not None and arguments.remove is not None:
        raise UsageError("add an alias or remove one, in two commands")
    store = open_store(arguments)
    if arguments.name is not None:
        resolve_published(store, arguments.name)  # its error says what there is
        store.add_alias(arguments.alias, store.aliases().get(arguments.name, arguments.name))
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


def _promote(store: Artifacts, ref: ArtifactRef, *, as_json: bool) -> None:
    store.promote(ref)
    previous = None
    with suppress(ArtifactNotFoundError, ArtifactCorruptError):
        previous = store.served_before(default_tokenizer())
    if as_json:
        print_json({"active": _identity(ref), "previous": previous and _identity(previous)})
        return
    print(f"{ref} now serves; running services follow within a second")
    if previous is not None:
        print(f"back again:  tokenizer promote {previous}")


def _identity(ref: ArtifactRef) -> dict[str, str]:
    return {"name": ref.name, "version": ref.version, "digest": ref.digest}
