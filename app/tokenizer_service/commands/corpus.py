"""`tokenizer corpus encode`, `verify`, `inspect`, `pack`: make, check, show, pack token files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.corpus import (
    LAYOUTS,
    RARE,
    CorpusFormat,
    EncodingProgress,
    SplitRecord,
    TokenFiles,
    TokenFilesPlan,
    TokenManifest,
    can_resume,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.corpus_encoding import corpus_settings
from tokenizer_core.corpus.encoding_run import find_complete
from tokenizer_core.corpus.token_files import check_tokenizer
from tokenizer_core.corpus.token_manifest import partial_folder, render_plan
from tokenizer_core.corpus.token_plan import OVER_LENGTHS, specials_of_documents
from tokenizer_core.errors import (
    CorpusError,
    SpecialTokenForbiddenError,
    TokenFilesCorruptError,
    TokenizerCoreError,
    counted,
)
from tokenizer_core.presets import PRESETS
from tokenizer_core.text.decode_streams import StreamingDecoder
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.commands.command_line import (
    ANSWER_IS_NO,
    CommandError,
    CommandParser,
    UsageError,
    add_command,
    add_group,
    is_given,
    parse_place,
    print_warnings,
)
from tokenizer_service.commands.corpus_options import (
    CHAT,
    add_bad_documents,
    add_corpus_format,
    corpus_format_of,
    files_in_order,
    kinds_of,
    max_bad_of,
)
from tokenizer_service.commands.corpus_sample import add_sample
from tokenizer_service.commands.outputs import print_json, require_folder_of, show_token
from tokenizer_service.commands.progress import add_quiet, follow, has_colours, progress_bar
from tokenizer_service.commands.run_options import add_run_options, check_run_options, encode_in_run
from tokenizer_service.commands.tokenizer_arguments import (
    add_tokenizer_arguments,
    allowed_special,
    find_tokenizer,
    load_tokenizer,
)
from tokenizer_service.commands.uploaded_output import add_temp_dir, encode_and_upload

if TYPE_CHECKING:
    from tokenizer_core.corpus import ConversationEncoder
    from tokenizer_core.registry import ArtifactRef

_COMPLETE: Final = "{} is complete already, of the same files and settings; nothing was encoded"
_MOST_USED: Final = 5


def add_parsers(subcommands: Any) -> None:
    """Turn corpora into token files that a model trains on, check such files, pack their
    documents into sequences, and draw samples of corpora.

    examples:
      tokenizer corpus encode stories.txt --output stories-tokens
      tokenizer corpus verify stories-tokens
      tokenizer corpus inspect stories-tokens --document 17
      tokenizer corpus pack stories-tokens --length 4096
      tokenizer corpus sample 'data/*.jsonl.gz' --fraction 0.01 -o sample.txt
    """
    below = add_group(subcommands, "corpus", add_parsers)
    _add_encode(below)

    about = "check token files and packs: hashes, sizes, ids, documents"
    verify = add_command(below, run_verify, help=about)
    _add_folder(verify, nargs="+")
    verify.add("--json", "print the figures as JSON")
    add_tokenizer_arguments(verify, default="none")
    add_quiet(verify)

    about = "show the manifest of token files, or one document"
    inspect = add_command(below, run_inspect, help=about)
    _add_folder(inspect)
    inspect.add("--document N", "number of the document, from 0")
    inspect.add("--split SPLIT", "split of the document (default: train)", default="train")
    inspect.add("--ids", "show ids instead of text")
    inspect.add("--mask", "mark where the loss counts: reversed on a terminal, else in [[ and ]]")
    inspect.add("--json", "print the manifest as JSON")
    add_tokenizer_arguments(inspect, default="the one that the manifest names")

    about = "pack the documents of token files into sequences of a fixed length"
    pack = add_command(below, run_pack, help=about)
    _add_folder(pack)
    pack.add("--length N", "most tokens of a sequence", required=True)
    pack.add("--split-documents", "cut documents of more than N tokens (default: refuse them)")
    about = "a new folder (default: FOLDER.packed-N beside the token files)"
    pack.add("-o --output FOLDER", about)
    pack.add("--json", "print the manifest as JSON")
    add_quiet(pack)

    add_sample(below)


def _add_encode(subcommands: Any) -> None:
    parser = add_command(
        subcommands, run_encode, help="encode corpus files into a folder of token files"
    )
    parser.instead = {
        **parser.instead,
        "--add-special-tokens": "see --begin-of-document and --end-of-document",
        "--disallowed-special": "see --allowed-special",
    }
    parser.add(
        "inputs FILE",
        "files, addresses (s3://...), or patterns of them in quotes",
        type=str,
        nargs="+",
    )
    parser.add(
        "-o --output FOLDER",
        "a new folder, or an address (s3://bucket/prefix)",
        type=parse_place,
        required=True,
    )
    add_temp_dir(parser)
    parser.add(
        "--layout", "layout of the ids (default: raw)", choices=sorted(LAYOUTS), default="raw"
    )
    parser.add(
        "--dtype",
        "type of the ids; auto (the default): uint16 if the largest id fits",
        choices=("auto", "uint16", "uint32"),
        default="auto",
    )
    parser.add("--tokens-per-shard N", "tokens of one file (default: all)")
    add_corpus_format(parser, conversations=True)
    parser.add(
        "--loss",
        "where the loss counts in conversations: at the template's generation tags, or at "
        "the assistant's turns; auto (the default): the first if the template has tags",
        choices=("auto", "template", "role"),
    )
    parser.add(
        "--chat-template NAME|FILE",
        "chat template: one of the tokenizer's, or a file (default: the tokenizer's)",
    )
    parser.add(
        "--turn-end TOKEN",
        "added token that the assistant writes to end its turn, besides those that the "
        "model folder declares; repeat it for several",
        action="append",
        default=[],
    )
    add_bad_documents(parser)
    parser.add("--begin-of-document TOKEN", "special token before each document")
    parser.add(
        "--end-of-document TOKEN",
        "special token after each document, '' for none (default: the only one of the "
        "vocabulary that is known to end documents)",
    )
    parser.add(
        "--allowed-special all|none|ordinary|TOKEN,TOKEN",
        "special tokens to recognise in the text; others are plain text (default: all if every "
        "file is plain text; else a special token in a document is an error). ordinary: no added "
        "token at all, not even one that is not special (<think>)",
    )
    parser.add(
        "--max-length N", "most tokens of a document, with those around it (default: any number)"
    )
    parser.add(
        "--over-length",
        "what to do with a longer document (default: truncate); needs --max-length",
        choices=OVER_LENGTHS,
    )
    parser.add(
        "--validation-share FRACTION",
        "fraction of the documents to hold out as the split `validation`",
        default=0.0,
    )
    parser.add("--shuffle", "put all documents into a random order")
    parser.add(
        "--seed SEED", "seed of the order and of the validation split (default: 0)", default=0
    )
    parser.add("--workers N", "processes (default: 1; with --checkpoint-dir one per processor)")
    add_run_options(parser)
    parser.add("--resume", "continue an interrupted run of the same command; a complete one stays")
    parser.add("--json", "print the manifest as JSON")
    add_quiet(parser)
    add_tokenizer_arguments(parser)


def _add_folder(parser: CommandParser, **options: Any) -> None:
    about = "folder of token files, or s3://bucket/prefix"
    parser.add("folder FOLDER", about, type=parse_place, **options)
    parser.add("--cache FOLDER", "cache for files of an address (default: a folder below ~/.cache)")


def run_encode(arguments: argparse.Namespace) -> None:
    r"""Encode every document of the files, in order, into a new folder: shards of ids,
    the ends of the documents, and a manifest that binds them to the tokenizer and the
    files. The folder appears once it is complete.

    examples:
      tokenizer corpus encode stories.txt --output stories-tokens
      tokenizer corpus encode 'data/*.jsonl.gz' --field story --tokenizer gpt2 \
          --layout npy --validation-share 0.005 --output tokens
      tokenizer corpus encode 's3://bucket/news/*.jsonl.gz' --output tokens
      tokenizer corpus encode stories.txt --output s3://bucket/stories-tokens
      tokenizer corpus encode chats.jsonl --format chat --output chat-tokens
      tokenizer corpus encode 's3://bucket/news/*.jsonl' --executor ray \
          --ray-address head:6379 --checkpoint-dir s3://runs/news --output tokens

    In plain text the separator ends a document. Layouts: raw (np.memmap, as nanoGPT),
    npy (np.load), megatron (.bin and .idx), parquet (.bin and .parquet, for TRL and
    axolotl), llmc (llm.c). --resume continues an interrupted run, even after kill -9,
    and writes the same bytes.
    """
    check_run_options(arguments)
    if arguments.over_length and arguments.max_length is None:
        raise UsageError("--over-length belongs to --max-length")
    is_here = isinstance(arguments.output, Path) and arguments.checkpoint_dir is None
    if arguments.temp_dir is not None and is_here:
        raise UsageError(
            "--temp-dir belongs to an output at an address or to --checkpoint-dir; other token "
            "files are made in the folder of the output"
        )
    require_folder_of(arguments.output, is_folder=True)
    is_chat = arguments.format == CHAT
    if not is_chat and any((arguments.loss, arguments.chat_template, arguments.turn_end)):
        raise UsageError("--loss, --chat-template and --turn-end belong to --format chat")
    if is_chat and is_given(arguments, "allowed_special"):
        raise UsageError(
            "--allowed-special is of texts; of conversations the chat template alone writes "
            "special tokens, leave it out"
        )
    # Refuse wrong options before the tokenizer is loaded.
    max_bad_of(arguments)
    files = files_in_order(arguments.inputs)
    corpus_format = corpus_format_of(arguments, files)
    tokenizer, ref = find_tokenizer(arguments)
    fingerprint = tokenizer.spec.fingerprint
    preset = next((one.name for one in PRESETS.values() if fingerprint in one.fingerprints), None)
    plan = _plan(arguments, tokenizer, ref or preset, files)
    encoder = _conversation_encoder(arguments, tokenizer) if is_chat else None
    encode = partial(_encode, arguments, tokenizer, files, plan, corpus_format, encoder)
    if isinstance(arguments.output, Path):
        manifest = encode(arguments.output)
    else:
        paths = [str(Path(file).absolute()) for file in files]
        share, shuffle = arguments.validation_share, arguments.shuffle
        manifest = encode_and_upload(
            encode,
            arguments.output,
            (render_plan(plan), paths, corpus_format, share, shuffle, encoder and encoder.settings),
            find_uploaded=partial(_find_uploaded, arguments, files, plan, corpus_format, encoder),
            files=files,
            temp_dir=arguments.temp_dir,
            resume=arguments.resume,
            quiet=arguments.quiet,
        )
    separator = arguments.separator if is_given(arguments, "separator") else None
    _print_manifest(manifest, arguments.output, as_json=arguments.json)
    print_warnings(*manifest.warnings(arguments.validation_share, separator))


def _find_uploaded(
    arguments: argparse.Namespace,
    files: list[str],
    plan: TokenFilesPlan,
    corpus_format: CorpusFormat,
    encoder: ConversationEncoder | None,
) -> TokenManifest | None:
    """The manifest at the address of the output, if it is that of this command."""
    settings = corpus_settings(files, corpus_format, arguments.validation_share, encoder)
    settings["shuffle"] = arguments.shuffle
    found = find_complete(arguments.output, plan, settings, files, max_bad_of(arguments))
    if found is not None:
        print(_COMPLETE.format(arguments.output), file=sys.stderr)
    return found


def _encode(
    arguments: argparse.Namespace,
    tokenizer: Tokenizer,
    files: list[str],
    plan: TokenFilesPlan,
    corpus_format: CorpusFormat,
    encoder: ConversationEncoder | None,
    folder: Path,
) -> TokenManifest:
    # The shards of a checkpoint folder continue anyway.
    resume = arguments.resume or arguments.checkpoint_dir is not None
    is_there = folder.exists()
    with progress_bar(quiet=arguments.quiet, desc="encoding", leave=True, delay=0) as bar:

        def show(progress: EncodingProgress) -> None:
            bar.set_description(progress.phase, refresh=False)
            bar.set_postfix_str(f"{progress.n_tokens:,} tokens", refresh=False)
            follow(bar)(progress.bytes_done, progress.bytes_total)

        if arguments.checkpoint_dir is None:
            workers = 1 if arguments.workers is None else arguments.workers
            encode = partial(encode_corpus, workers=workers)
        else:
            encode = partial(encode_in_run, arguments)
        try:
            manifest = encode(
                tokenizer,
                files,
                folder,
                plan,
                corpus_format=corpus_format,
                validation_share=arguments.validation_share,
                shuffle=arguments.shuffle,
                resume=resume,
                progress=show,
                document_encoder=encoder,
                max_bad=max_bad_of(arguments),
            )
            if is_there:
                print(_COMPLETE.format(folder), file=sys.stderr)
            return manifest
        except (CorpusError, SpecialTokenForbiddenError) as error:
            if arguments.checkpoint_dir is None and can_resume(folder):
                way_on = "--resume continues, and reads a mended file from its beginning"
                if isinstance(error, SpecialTokenForbiddenError):
                    way_on = "--resume and --allowed-special continues"
                error.add_note(
                    f"the same command with {way_on}; with other options remove the unfinished "
                    f"folder {partial_folder(folder)}"
                )
            raise
        except KeyboardInterrupt as interrupt:
            if arguments.checkpoint_dir is not None:
                interrupt.add_note("run the same command to continue after the finished shards")
            elif can_resume(folder):
                interrupt.add_note("run the same command with --resume to continue")
            raise


def _conversation_encoder(
    arguments: argparse.Namespace, tokenizer: Tokenizer
) -> ConversationEncoder:
    from tokenizer_core.corpus import ConversationEncoder  # imports the chat templates

    template = arguments.chat_template
    if template is not None and template not in tokenizer.chat_templates:
        try:
            template = Path(template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            known = ", ".join(tokenizer.chat_templates) or "none"
            raise CommandError(
                f"the chat template {arguments.chat_template!r} is neither a file ({error}) nor "
                f"one of the tokenizer's ({known})"
            ) from None
    encoder = ConversationEncoder(
        tokenizer,
        loss=arguments.loss or "auto",
        chat_template=template,
        turn_ends=arguments.turn_end,
    )
    print_warnings(*encoder.warnings)
    return encoder


def _plan(
    arguments: argparse.Namespace,
    tokenizer: Tokenizer,
    ref: ArtifactRef | str | None,
    files: list[str],
) -> TokenFilesPlan:
    named = arguments.allowed_special
    allowed = None if named is None else allowed_special(tokenizer, named)
    is_text = arguments.format == CHAT or kinds_of(arguments, files) == {True}
    return plan_token_files(
        tokenizer,
        layout=arguments.layout,
        dtype=arguments.dtype,
        tokens_per_shard=arguments.tokens_per_shard,
        begin_of_document=arguments.begin_of_document,
        end_of_document=arguments.end_of_document,
        **specials_of_documents(allowed, is_text=is_text),
        seed=arguments.seed,
        ref=ref,
        max_length=arguments.max_length,
        over_length=arguments.over_length or "truncate",
        loss_mask=arguments.format == CHAT,
    )


def run_verify(arguments: argparse.Namespace) -> None:
    """Check everything about token files that can be checked without the corpus; with a
    tokenizer also that it wrote them, and that it has each id. A pack is compared with
    its token files if they are named too. The exit code is 3 if something is damaged.

    examples:
      tokenizer corpus verify stories-tokens
      tokenizer corpus verify stories-tokens --tokenizer gpt2
      tokenizer corpus verify stories-tokens stories-tokens.packed-4096
    """
    from tokenizer_core.corpus.packing import is_pack, verify_pack

    is_named = arguments.tokenizer or arguments.files
    tokenizer = load_tokenizer(arguments) if is_named else None
    packs = [folder for folder in arguments.folder if isinstance(folder, Path) and is_pack(folder)]
    folders = [folder for folder in arguments.folder if folder not in packs]
    figures: list[dict[str, object]] = []
    sound: list[TokenFiles] = []
    damaged = []
    for folder in (*folders, *packs):
        try:
            if folder in packs:
                pack, is_compared = verify_pack(folder, sound)
                n = sum(split.n_sequences for split in pack.splits)
                figures.append({"folder": str(folder), "sequences": n, "compared": is_compared})
                beside = "" if is_compared else "; name its token files, too, to compare them"
                said = f"a pack of {counted(n, 'sequence')}, all as the manifest says{beside}"
            else:
                with progress_bar(quiet=arguments.quiet, desc="checking") as bar:
                    found = verify_token_files(
                        folder, tokenizer=tokenizer, cache=arguments.cache, progress=follow(bar)
                    )
                sound.append(TokenFiles.open(folder, cache=arguments.cache))
                n_all = {"documents": found.n_documents, "tokens": found.n_tokens}
                figures.append({"folder": str(folder), "files": found.n_files, **n_all})
                said = (
                    f"{counted(found.n_files, 'file')}, {counted(found.n_documents, 'document')}, "
                    f"{counted(found.n_tokens, 'token')}, all as the manifest says"
                )
        except TokenFilesCorruptError as error:
            damaged.append(f"{folder}: {error}")
        else:
            if not arguments.json:
                print(f"{folder}: {said}")
    if arguments.json:
        print_json(figures)
    if damaged:
        raise CommandError("; ".join(damaged), exit_code=ANSWER_IS_NO)


def run_pack(arguments: argparse.Namespace) -> None:
    """Choose the documents of each training sequence (best-fit decreasing), and write the
    choice beside the token files; ids are not copied. Each document is in one sequence.

    examples:
      tokenizer corpus pack stories-tokens --length 4096
      tokenizer corpus pack stories-tokens --length 4096 --split-documents -o packed
    """
    from tokenizer_core.corpus.packing import default_pack_folder, pack_token_files

    files = TokenFiles.open(arguments.folder, cache=arguments.cache)
    folder = arguments.output or default_pack_folder(files.folder, arguments.length)
    require_folder_of(folder, is_folder=True)
    with progress_bar(quiet=arguments.quiet, desc="packing") as bar:
        packed = pack_token_files(
            files,
            arguments.length,
            folder,
            split_documents=arguments.split_documents,
            progress=follow(bar),
        )
    if arguments.json:
        print(packed.to_json().decode(), end="")
        return
    for split in packed.splits:
        print(
            f"{split.name}: {counted(split.n_sequences, 'sequence')} of at most "
            f"{packed.length:,} tokens, {packed.fill_rate(split.name):.2%} full; "
            f"fewer than {split.lower_bound:,} are impossible"
        )
    print(f"pack: {folder}")


def run_inspect(arguments: argparse.Namespace) -> None:
    """Show the manifest, or with --document the text of one document.

    examples:
      tokenizer corpus inspect stories-tokens
      tokenizer corpus inspect stories-tokens --document 17
      tokenizer corpus inspect chat-tokens --document 17 --mask
    """
    if arguments.document is None:
        if arguments.ids or arguments.mask or is_given(arguments, "split"):
            raise UsageError("--ids, --mask and --split belong to --document")
        files = TokenFiles.open(arguments.folder, cache=arguments.cache)
        _print_manifest(files.manifest, arguments.folder, as_json=arguments.json)
        print_warnings(*files.manifest.warnings())
        if not arguments.json:
            vocab = _vocab_of(arguments, files)
            for split in files.manifest.splits:
                _print_use(files, split, vocab)
        return
    if arguments.json:
        raise UsageError("--json shows the manifest; leave --document out")
    try:
        files = TokenFiles.open(arguments.folder, cache=arguments.cache)
        tokenizer = None if arguments.ids else _load_writer(arguments, files)
        print(_show_document(arguments, files, tokenizer))
    except LookupError as error:  # no such document or split
        raise CommandError(str(error.args[0])) from None


def _load_writer(arguments: argparse.Namespace, files: TokenFiles) -> Tokenizer:
    """The tokenizer that the arguments name, or else the manifest."""
    if not (arguments.tokenizer or arguments.files):
        arguments.tokenizer = files.manifest.plan.tokenizer.label
        if arguments.tokenizer is None:
            raise CommandError(
                "the manifest names no tokenizer; name the one that wrote the files (--tokenizer, "
                f"--files), with the fingerprint {files.manifest.plan.tokenizer.fingerprint[:16]}"
            )
    tokenizer = load_tokenizer(arguments)
    check_tokenizer(files.manifest.plan, tokenizer)
    return tokenizer


def _vocab_of(arguments: argparse.Namespace, files: TokenFiles) -> Mapping[int, bytes]:
    """The tokens, empty if no tokenizer is named and the one that wrote the files is not here."""
    is_named = arguments.tokenizer or arguments.files
    try:
        return _load_writer(arguments, files).spec.vocab
    except (CommandError, TokenizerCoreError):
        if is_named:
            raise
        return {}


def _show_document(
    arguments: argparse.Namespace, files: TokenFiles, tokenizer: Tokenizer | None
) -> str:
    """The text of the document, without a tokenizer its ids; with --mask the learned parts are
    marked."""
    ids = files.document(arguments.document, arguments.split).tolist()
    mask = [0] * len(ids)
    if arguments.mask:
        mask = files.document_mask(arguments.document, arguments.split).tolist()
    before, after = ("\x1b[7m", "\x1b[0m") if has_colours(sys.stdout) else ("[[", "]]")
    stream = None if tokenizer is None else StreamingDecoder(tokenizer)
    shown, stop = [], 0
    for is_learned, run in groupby(mask):
        start, stop = stop, stop + len(list(run))
        part = ids[start:stop]
        text = " ".join(map(str, part)) if stream is None else stream.feed(part)
        if stream is not None and stop == len(ids):
            text += stream.flush()
        shown.append(f"{before}{text}{after}" if is_learned and text else text)
    return (" " if stream is None else "").join(shown)


def _print_manifest(manifest: TokenManifest, folder: Path | str, *, as_json: bool) -> None:
    if as_json:
        print(manifest.to_json().decode(), end="")
        return
    plan = manifest.plan
    for split in manifest.splits:
        per_token = f"{manifest.bytes_per_token(split.name):.3f} bytes per token, "
        if manifest.document_encoder is not None:
            per_token = ""  # the bytes of conversations are those of their records
        print(
            f"{split.name}: {counted(split.n_documents, 'document')}, "
            f"{counted(split.n_tokens, 'token')}, {per_token}shards: {len(split.shards)}"
        )
        if split.n_loss_tokens is not None:
            share = split.n_loss_tokens / split.n_tokens
            print(f"  the loss counts at {counted(split.n_loss_tokens, 'token')} ({share:.1%})")
    if manifest.document_encoder is not None:
        print(f"conversations: {_describe_encoder(manifest.document_encoder)}")
    for sentence in manifest.counts_in_words():
        print(f"  {sentence}")
    print(plan.end_in_words)
    by = plan.tokenizer
    label = f"{by.label}, " if by.label else ""
    inside = " (int32 in the Parquet files)" if plan.layout_name == "parquet" else ""
    print(
        f"{plan.disk_dtype} ids as {plan.layout_name}{inside}, by the tokenizer "
        f"{label}{by.fingerprint[:16]}"
    )
    print(f"source files: {len(manifest.sources)}; manifest: {folder}/manifest.json")


def _describe_encoder(settings: Mapping[str, Any]) -> str:
    """The settings of `ConversationEncoder` in words; those of another encoder as JSON."""
    try:
        templates = ", ".join(
            f"{template['name'] or 'given as a file'} ({template['sha256'][:16]})"
            for template in settings["chat_templates"]
        )
        rule, form = settings["loss"], settings["messages_form"]
        ends = ", ".join(settings["turn_ends"]) or "no token"
        return (
            f"chat template {templates}, loss rule {rule}, messages {form}, declared to end "
            f"turns: {ends}"
        )
    except (KeyError, TypeError):
        return json.dumps(settings)[:400]


def _print_use(files: TokenFiles, split: SplitRecord, vocab: Mapping[int, bytes]) -> None:
    use = files.token_counts(split.name)
    n_ids = files.manifest.plan.tokenizer.vocab_size
    n_used, n_rare = int((use > 0).sum()), int(((use > 0) & (use < RARE)).sum())
    most = sorted(range(len(use)), key=lambda id_: -int(use[id_]))[:_MOST_USED]
    listed = ", ".join(
        f"{id_} {show_token(vocab[id_]) if id_ in vocab else ''}".rstrip()
        + f" ({counted(int(use[id_]), 'time')})"
        for id_ in most
        if use[id_]
    )
    print(
        f"{split.name}: of {n_ids:,} tokens {n_ids - n_used:,} are never used, {n_rare:,} fewer "
        f"than {RARE} times; most used: {listed}"
    )
