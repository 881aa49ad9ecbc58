"""`tokenizer completion`: the script with which a shell completes commands, options and names.

shtab generates the script from the parsers once, so that pressing Tab does not start Python. The
script itself lists the tokenizers and jobs on the disk.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from tokenizer_core.presets import PRESETS
from tokenizer_service.commands.command_line import add_command

# The metavar of an argument selects its completion, so that commands need no code for completion.
_FILES: Final = ("FILE", "INPUT", "COUNTS", "COUNTS[=WEIGHT]", "PATH", "NAME=FILE")
_NAMES: Final = ("NAME[@VERSION]", "NAME")
_NAMES_OR_FILES: Final = ("TOKENIZER", "A", "B", "SOURCE")

# The functions list candidates: the names in a subfolder of the artifacts folder, their versions
# once the word has an @, presets, and files.
_BASH: Final = """\
COMP_WORDBREAKS=${COMP_WORDBREAKS//@}  # else NAME@VERSION is several words
_tokenizer_below() {
  compgen -W "$(command ls "${TOKENIZER_ARTIFACTS_DIR:-artifacts}/$1" 2>/dev/null)" -- "$2"
}
_tokenizer_versions() {
  compgen -W "$(cd "${TOKENIZER_ARTIFACTS_DIR:-artifacts}/tokenizers" 2>/dev/null &&
    command ls -d */* 2>/dev/null | tr / @)" -- "$1"
}
_tokenizer_names() {
  case $1 in *@*) _tokenizer_versions "$1" ;; *) _tokenizer_below tokenizers "$1" ;; esac
}
_tokenizer_jobs() { _tokenizer_below jobs "$1"; }
_tokenizer_presets() { compgen -W "{presets}" -- "$1"; }
_tokenizer_names_or_files() {
  _tokenizer_names "$1"; compgen -W starter -- "$1"; _tokenizer_presets "$1"; compgen -f -- "$1"
}
"""
_ZSH: Final = """\
_tokenizer_below() {
  local -a found
  found=("${TOKENIZER_ARTIFACTS_DIR:-artifacts}"/$1/*(N:t))
  compadd -a found
}
_tokenizer_versions() {
  local -a found
  found=("${TOKENIZER_ARTIFACTS_DIR:-artifacts}"/tokenizers/*/*(N))
  found=(${found#*/tokenizers/})
  found=(${found/\\//@})
  compadd -a found
}
_tokenizer_names() {
  if [[ $PREFIX == *@* ]]; then _tokenizer_versions; else _tokenizer_below tokenizers; fi
}
_tokenizer_jobs() { _tokenizer_below jobs }
_tokenizer_presets() { compadd {presets} }
_tokenizer_names_or_files() {
  _tokenizer_names; compadd starter; _tokenizer_presets; _files
}
"""
_FISH: Final = """\
function _tokenizer_folder
  set -q TOKENIZER_ARTIFACTS_DIR; and echo $TOKENIZER_ARTIFACTS_DIR; or echo artifacts
end
function _tokenizer_below; command ls (_tokenizer_folder)/$argv[1] 2>/dev/null; end
function _tokenizer_versions
  for name in (_tokenizer_below tokenizers)
    printf "$name@%s\\n" (_tokenizer_below tokenizers/$name)
  end
end
function _tokenizer_names
  if string match -q '*@*' -- (commandline -ct)
    _tokenizer_versions
  else
    _tokenizer_below tokenizers
  end
end
function _tokenizer_jobs; _tokenizer_below jobs; end
function _tokenizer_presets; printf "%s\\n" {presets}; end
function _tokenizer_names_or_files
  _tokenizer_names
  echo starter
  _tokenizer_presets
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
        for kind in ("names", "versions", "presets", "names_or_files", "jobs")
    }
    _set_completions(
        parser,
        {
            "FOLDER": shtab.DIRECTORY,
            "JOB": listed["jobs"],
            "NAME@VERSION": listed["versions"],
            "PRESET": listed["presets"],
        }
        | dict.fromkeys(_FILES, shtab.FILE)
        | dict.fromkeys(_NAMES, listed["names"])
        | dict.fromkeys(_NAMES_OR_FILES, listed["names_or_files"]),
    )
    preamble = _PREAMBLES[shell].replace("{presets}", " ".join(PRESETS))
    return shtab.complete(parser, shell, preamble=preamble)


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
