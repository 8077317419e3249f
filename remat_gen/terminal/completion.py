"""Shell completion: the shell hands over what was typed, in which the default command is not said.

Typer's own completion looks for a command in the first word, and finds `model.py` there. So
`generate` is put before it, as the command line itself does.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, MutableMapping

ASKED = "_REMAT_GEN_COMPLETE"  # set by the script that --install-completion writes
INSTALLING = ("--install-completion", "--show-completion")
_DEFAULT = "generate"


def say_default(environment: MutableMapping[str, str], commands: Collection[str]) -> None:
    """Put the default command into what a shell asks completions for."""
    if "COMP_WORDS" in environment:
        _for_bash(environment, commands)
    if "_TYPER_COMPLETE_ARGS" in environment:
        _for_others(environment, commands)


def _for_bash(environment: MutableMapping[str, str], commands: Collection[str]) -> None:
    """Bash gives the words, one a line or with spaces between, and the number of the one typed."""
    program, *words = _words(environment["COMP_WORDS"])
    if _needs_default(words, typing=int(environment["COMP_CWORD"]) == 1, commands=commands):
        environment["COMP_WORDS"] = "\n".join([program, _DEFAULT, *words])
        environment["COMP_CWORD"] = str(int(environment["COMP_CWORD"]) + 1)


def _for_others(environment: MutableMapping[str, str], commands: Collection[str]) -> None:
    """Zsh, fish and PowerShell give the line up to the cursor."""
    line = environment["_TYPER_COMPLETE_ARGS"]
    program, _, rest = line.lstrip().partition(" ")
    words = rest.split()
    if _needs_default(words, typing=" " not in rest.lstrip(), commands=commands):
        environment["_TYPER_COMPLETE_ARGS"] = f"{program} {_DEFAULT} {rest}"


def _needs_default(words: list[str], *, typing: bool, commands: Collection[str]) -> bool:
    """Tell whether the first word is no command, nor the beginning of one that is being typed."""
    first = words[0] if words else ""
    if typing:
        return first.startswith("-")
    return first not in commands


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return text.split()
