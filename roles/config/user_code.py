"""Code that a user names: a task, a scheme, a defence or an attack, as `package.module:name` or `./task.py:name`.

Naming code runs it, so whose word a name is decides whether anything is loaded:

* from a person's own command line, or a program's own `FederationConfig`: it is loaded;
* from federation.toml: it is loaded for a party whose pinned organiser signed the settings, for the organiser that
  signs them, and for a simulation of the file; for whoever only looks at a federation nothing is loaded;
* from the network or a recorded view: never.

A module is one that is installed, or on PYTHONPATH. The current folder is not searched: it may be a stranger's. A file
is named as such, relative to federation.toml, or to the current folder on a command line. What is signed of a file is
its SHA-256 as well as its name, and the bytes that are hashed are those that run. Such a file cannot import what lies
beside it, so this covers all code that comes with the settings; installed modules are what each machine's owner
installed, and only their names are signed (specs/decisions/0018-code-in-a-federation.md).
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from veilsum.protocol.errors import ParameterError

FILE_SUFFIX = ".py"
_LARGEST_FILE = 16 * 1024 * 1024


class UserCodeNotFound(ParameterError):
    """The code that a user named cannot be imported."""

    def __init__(self, what: str, text: str, module: str, why: object, remedy: str) -> None:
        super().__init__([f"{what} {text!r}: module {module} cannot be imported ({why}); {remedy}"])


class UserCodeUnreadable(ParameterError):
    """A file with code is not where the settings say."""


class UserCodeRefused(ParameterError):
    """Code that a file names is not run here."""

    def __init__(self, what: str, text: str, why: str) -> None:
        super().__init__([f"{what} {text!r} is code of its own and was not loaded: {why}"])


@dataclass(frozen=True)
class CodeAccess:
    """What may be loaded of the code that a configuration names, and where its files lie.

    `folder` is where `./task.py` lies, if not in the current folder; `refusal` says why nothing may be loaded;
    `digests` has the SHA-256 that was signed for each file, and is None where nobody signed.
    """

    folder: Path | None = None
    refusal: str = ""
    digests: Mapping[str, str] | None = None

    def path_of(self, file: str) -> Path:
        """Where a file lies; one outside the folder is refused, since it would not travel with the settings."""
        if ".." in PurePosixPath(file).parts:
            raise ParameterError([f"{file!r} leaves its folder: name a file in the folder or below it"])
        return ((self.folder or Path.cwd()) / file).resolve()

    def read(self, file: str) -> bytes:
        path = self.path_of(file)
        try:
            with path.open("rb") as opened:
                content = opened.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise UserCodeUnreadable(
                [f"{path} cannot be read ({error.strerror}): it belongs beside the settings that name it"]
            ) from None
        if len(content) > _LARGEST_FILE:
            raise ParameterError([f"{path} has more than {_LARGEST_FILE} bytes: it is no code"])
        return content

    def digest_of(self, file: str) -> str:
        return hashlib.sha256(self.read(file)).hexdigest()


OWN = CodeAccess()
"""Names that a person typed, or a program wrote: all may be loaded."""


@dataclass(frozen=True)
class UserCode:
    """An imported module, and what its user named in it."""

    module: ModuleType
    name: str

    def value(self) -> Any:
        """What the module has under the name; None if it has nothing."""
        return getattr(self.module, self.name, None)


def names_file(text: str) -> str | None:
    """The file in `./task.py:name`, or None if the text names none."""
    file, colon, _ = text.partition(":")
    return file if colon and file.endswith(FILE_SUFFIX) and file.startswith(("./", "/")) else None


def named_files(text: str) -> Iterator[str]:
    """All files with code in a setting; several defences are joined by `+`."""
    return (file for one in text.split("+") if (file := names_file(one.strip())) is not None)


def is_loaded(text: str) -> bool:
    """Whether the module of a name is there already, so that asking for it runs nothing."""
    return (names_file(text) or text.rpartition(":")[0]) in sys.modules


def load_named(what: str, text: str, access: CodeAccess = OWN) -> UserCode:
    """Import the module of `package.module:name` or `./task.py:name`; `what` is the word for it in an error."""
    if access.refusal:
        raise UserCodeRefused(what, text, access.refusal)
    file = names_file(text)
    module, _, name = text.rpartition(":")
    if file is None and not all(part.isidentifier() for part in module.split(".")):
        remedy = "write package.module:Name, or ./file.py:Name for a file"
        raise UserCodeNotFound(what, text, module, "no name of a module", remedy)
    try:
        return UserCode(importlib.import_module(module) if file is None else _run_file(file, access), name)
    except UserCodeUnreadable as error:
        raise UserCodeNotFound(what, text, module, error, "correct the name of the file") from None
    except ParameterError:
        raise
    except ModuleNotFoundError as error:
        remedy = "is it installed or on PYTHONPATH? A file is named ./file.py:Name"
        raise UserCodeNotFound(what, text, module, error, remedy) from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise UserCodeNotFound(what, text, module, why, "correct the module") from error


def _run_file(file: str, access: CodeAccess) -> ModuleType:
    """The module of a file, which is called as its user named it, and run once for as long as its content is the same.

    So a copy of the file in another folder is the same module, and its classes are found by the text that names them.
    """
    content, path = access.read(file), str(access.path_of(file))
    digest = hashlib.sha256(content).hexdigest()
    if access.digests is not None and access.digests.get(file) != digest:
        remedy = "get it anew, or have it signed: veilsum roster sign"
        raise ParameterError([f"{path} is not the file that the organiser signed: {remedy}"])
    known = sys.modules.get(file)
    if known is not None and vars(known).get("__sha256__") == digest:
        return known
    module = ModuleType(file)
    vars(module).update(__file__=path, __sha256__=digest)
    sys.modules[file] = module
    try:
        exec(compile(content, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - what its user asked for
    except BaseException:
        del sys.modules[file]
        raise
    return module


@contextmanager
def making(what: str, text: str, advice: str) -> Iterator[None]:
    """Whatever the code of a user raises while something is made of it is an error in what was named."""
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:
        raise ParameterError([f"{what} {text!r} raised {type(error).__name__}: {error}; {advice}"]) from error
