"""`tokenizer doctor`: what a model folder gives, and where its files contradict each other."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.model_folder import ids_label, ids_of_folder
from tokenizer_service.commands.command_line import (
    ANSWER_IS_NO,
    CommandError,
    UsageError,
    add_command,
    error_of_file,
)
from tokenizer_service.commands.outputs import print_json


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_doctor)
    parser.add("folder FOLDER", "a model folder of Hugging Face")
    parser.add("--json", "print what was found as JSON")


def run_doctor(arguments: argparse.Namespace) -> int:
    """Show which ids a model folder gives: those of tokenizer.json alone, of transformers
    4.57.6 and of transformers 5.24.0, with the first text on which they differ, and where
    the files of the folder contradict each other. The exit code is 3 if there is anything
    to choose or to correct.

    examples:
      tokenizer doctor SmolLM2-135M
      tokenizer doctor Llama-2-7b --json | jq .ids

    then choose:  tokenizer import SmolLM2-135M --name smollm2 --ids transformers5
    """
    if not arguments.folder.is_dir():
        raise UsageError(f"{arguments.folder} is no folder; name the folder of a model")
    try:
        found = ids_of_folder(arguments.folder)
    except FormatError as error:
        raise error_of_file(arguments.folder, error) from error
    groups = found.groups()
    text, ids = found.difference or (None, {})
    if arguments.json:
        print_json(
            {
                "ids": {
                    choice: {
                        "of": ids_label(choice),
                        "same_as": groups.get(choice),
                        "refused": str(given) if isinstance(given, FormatError) else None,
                        "example": ids.get(choice),
                    }
                    for choice, given in found.found.items()
                },
                "differ_in": list(found.parts),
                "first_text": text,
                "contradictions": list(found.contradictions),
            }
        )
    else:
        for choice, given in found.found.items():
            shown = "its own ids"
            if isinstance(given, FormatError):
                shown = f"refused: {given}"
            elif groups[choice] != choice:
                shown = f"the ids of {groups[choice]}"
            print(f"{choice:<14} {ids_label(choice):<20} {shown}")
        if found.parts:
            print(f"they differ in {', '.join(found.parts)}")
        if text is not None:
            print(f"the first text that differs: {text!a}")
            for choice, given_ids in ids.items():
                print(f"  {choice:<14} {given_ids}")
        for sentence in found.contradictions:
            print(f"contradiction: {sentence}")
        if found.specs and (found.parts or found.contradictions):
            way = "correct the files, or take" if found.contradictions else "choose"
            own = "|".join(name for name, same in groups.items() if name == same)
            choice = f" --ids {own}" if found.parts else ""
            folder = shlex.quote(str(arguments.folder.absolute()))
            print(f"{way}:  tokenizer import {folder} --name NAME{choice}")
    if not found.specs:
        raise CommandError(f"{arguments.folder}: nothing can read it, see above")
    return ANSWER_IS_NO if found.parts or found.contradictions else 0
