"""Print a script that completes commands, options, names and files in a shell.

It knows the commands of this version: make it anew after an update.

examples:
  veilsum completion bash > ~/.local/share/bash-completion/completions/veilsum
  veilsum completion zsh > ~/.zfunc/_veilsum          (a folder that is on your fpath)
  veilsum completion fish > ~/.config/fish/completions/veilsum.fish
  source <(veilsum completion bash)                   (for this shell alone)
"""

from __future__ import annotations

import argparse
import sys

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(program=parser.prog.partition(" ")[0], table=getattr(parser, "table", ()))
    parser.add_argument("shell", choices=SHELLS, help="the shell that shall complete")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.cli.completion import completion_script

    sys.stdout.write(completion_script(args.shell, args.program, args.table))
    return 0
