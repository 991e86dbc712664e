"""What `veilsum broker` runs of a broker's folder: the configuration that veilsum writes, with figures of one's own.

The folder may be a stranger's, and mosquitto does what its configuration says: it loads plugins, reads further files,
writes logs and sockets anywhere. So only the keywords that veilsum writes are accepted, paths lie in the folder, and
nothing in it is a link: mosquitto would read and write through one, as root too. Who wants more starts mosquitto.

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from veilsum.protocol.errors import ParameterError
from veilsum.roles.broker.files import CONFIGURATION, configuration_keywords

PATHS = {"certfile", "keyfile", "password_file", "acl_file", "persistence_location"}
LOG_TARGETS = {"stderr", "stdout", "syslog", "none"}
_VALUE = re.compile(r"[A-Za-z0-9._:-]+")
_LARGEST_FILE = 65_536
_LONGEST_LINE = 1000
"""An older mosquitto takes what is beyond for a line of its own."""
_REMEDY = (
    "veilsum broker DIR --configure writes the file anew; for more than it writes, start mosquitto yourself"
)


def require_own_configuration(folder: Path) -> str:
    """The text of mosquitto.conf, if it says nothing but what veilsum lets it say; refused by line otherwise."""
    linked = sorted(map(str, _links(folder)))
    if linked:
        raise ParameterError(
            [
                f"{', '.join(linked[:8])}: a link, or no file and no folder, which a broker would follow: put the "
                "file itself there, or start mosquitto yourself"
            ]
        )
    path = folder / CONFIGURATION
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParameterError([f"{path} is no text ({error}): {_REMEDY}"]) from None
    if len(content) > _LARGEST_FILE:
        raise ParameterError([f"{path} has more than {_LARGEST_FILE} bytes: {_REMEDY}"])
    problems = [
        f"{path}, line {number}: {problem}; {_REMEDY}"
        for number, line in enumerate(text.split("\n"), 1)
        for problem in _problems(line)
    ]
    if problems:
        raise ParameterError(problems)
    return text


def _problems(line: str) -> Iterator[str]:
    """What one line says beyond what it may, read as mosquitto reads it: words with blanks between."""
    if len(line.encode()) > _LONGEST_LINE:
        yield f"it has more than {_LONGEST_LINE} characters"
    if line.startswith("#") or not line:
        return
    keyword, *values = line.split()[:8] or [line]
    if keyword not in configuration_keywords():
        yield f"{keyword!r} is not among what veilsum writes"
    elif keyword in PATHS:
        if len(values) != 1 or not _is_inside(values[0]):
            yield f"{keyword} names no path inside the folder"
    elif keyword == "log_dest":
        if len(values) != 1 or values[0] not in LOG_TARGETS:
            yield f"log_dest is one of {', '.join(sorted(LOG_TARGETS))} here"
    elif not all(_VALUE.fullmatch(value) for value in values):
        yield f"{keyword} has a value that is neither a word nor a number"


def _is_inside(text: str) -> bool:
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts and text.isprintable()


def _links(folder: Path) -> Iterator[Path]:
    """Everything in the folder that is neither a file nor a folder of its own."""
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _links(path)
        elif not stat.S_ISREG(mode):
            yield path
