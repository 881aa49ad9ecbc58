"""`tokenizer completion`: the script with which a shell completes commands, options and names.

shtab generates the script from the parsers once, so that pressing Tab does not start Python. The
script itself lists the tokenizers and jobs on the disk.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from tokenizer_service.commands.command_line import add_command

# The metavar of an argument selects its completion, so that commands need no code for completion.
_FILES: Final = ("FILE", "INPUT", "COUNTS", "COUNTS[=WEIGHT]", "PATH", "NAME=FILE")
_NAMES: Final = ("NAME[@VERSION]", "NAME")
_NAMES_OR_FILES: Final = ("TOKENIZER", "A", "B", "SOURCE")

# The functions list candidates: the names in a subfolder of the artifacts folder, and files.
_BASH: Final = """\
_tokenizer_below() {
  compgen -W "$(command ls "${TOKENIZER_ARTIFACTS_DIR:-artifacts}/$1" 2>/dev/null)" -- "$2"
}
_tokenizer_names() { _tokenizer_below tokenizers "$1"; }
_tokenizer_jobs() { _tokenizer_below jobs "$1"; }
_tokenizer_names_or_files() { _tokenizer_below tokenizers "$1"; compgen -f -- "$1"; }
"""
_ZSH: Final = """\
_tokenizer_below() {
  local -a found
  found=("${TOKENIZER_ARTIFACTS_DIR:-artifacts}"/$1/*(N:t))
  compadd -a found
}
_tokenizer_names() { _tokenizer_below tokenizers }
_tokenizer_jobs() { _tokenizer_below jobs }
_tokenizer_names_or_files() { _tokenizer_below tokenizers; _files }
"""
_FISH: Final = """\
function _tokenizer_below
  set -l folder artifacts
  set -q TOKENIZER_ARTIFACTS_DIR; and set folder $TOKENIZER_ARTIFACTS_DIR
  command ls $folder/$argv[1] 2>/dev/null
end
function _tokenizer_names; _tokenizer_below tokenizers; end
function _tokenizer_jobs; _tokenizer_below jobs; end
function _tokenizer_names_or_files
  _tokenizer_below tokenizers
  __fish_complete_path (commandline -ct)
end
"""

_PREAMBLES: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_completion, below="set it up")
    parser.add("shell", "the shell you use", choices=tuple(_PREAMBLES))


def run_completion(arguments: argparse.Namespace) -> None:
    """Print what your shell needs to complete commands, options, files, and the names of
    tokenizers and jobs. Write it again after an update.

    set it up:
      mkdir -p ~/.local/share/bash-completion/completions ~/.config/fish/completions ~/.zfunc
      tokenizer completion bash > ~/.local/share/bash-completion/completions/tokenizer
      tokenizer completion fish > ~/.config/fish/completions/tokenizer.fish
      tokenizer completion zsh > ~/.zfunc/_tokenizer

    For zsh ~/.zfunc must be in fpath before compinit runs. To try it in bash at once:
      eval "$(tokenizer completion bash)"
    """
    print(render_completion(arguments.build_whole_parser(), arguments.shell))


def render_completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of `parser` for one of the shells."""
    import shtab

    listed = {
        kind: {
            "bash": f"_tokenizer_{kind}",
            "zsh": f"_tokenizer_{kind}",
            "fish": f"(_tokenizer_{kind})",
        }
        for kind in ("names", "names_or_files", "jobs")
    }
    _set_completions(
        parser,
        {"FOLDER": shtab.DIRECTORY, "JOB": listed["jobs"]}
        | dict.fromkeys(_FILES, shtab.FILE)
        | dict.fromkeys(_NAMES, listed["names"])
        | dict.fromkeys(_NAMES_OR_FILES, listed["names_or_files"]),
    )
    return shtab.complete(parser, shell, preamble=_PREAMBLES[shell])


def _set_completions(parser: argparse.ArgumentParser, by_metavar: dict[str, Any]) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None  # shtab omits what `--help` does not list here
            for choice in action._choices_actions:  # zsh shows only one line of the help
                action.choices[choice.dest].description = choice.help
            for below in action.choices.values():
                _set_completions(below, by_metavar)
        elif action.metavar in by_metavar:
            action.complete = by_metavar[action.metavar]  # type: ignore[attr-defined]
