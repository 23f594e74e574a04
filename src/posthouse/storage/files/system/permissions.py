"""Who may read the data directory: its owner alone.

The catalog has the verifiers of passwords, segments and journal have the messages. Everything is made with
these modes, whatever the umask is; `tighten` changes what an older version or another program left more open.
"""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_OTHERS = 0o077
_OURS = ("journal", "set-aside", "topics")


def tighten(directory: Path) -> None:
    """Take the rights of group and others away; the log says so once.

    Looks at the files of the directory and at everything in `journal`, `set-aside` and `topics`. Other
    directories in it (an archive, say) are the user's. What cannot be changed or listed is reported and does
    not keep the broker from starting.
    """
    changed = 0
    failures: list[OSError] = []
    for path, mode in _entries(directory, failures):
        if mode & _OTHERS:
            try:
                Path(path).chmod(mode & ~_OTHERS)
                changed += 1
            except OSError as error:
                _note(error, failures)
    if changed:
        log.warning(
            "%s was open to other users: %d files and directories in it are now open to their owner only",
            directory,
            changed,
        )
    if failures:
        log.warning(
            "%s: other users may have access to files in it (%s); run 'chmod -R go= %s' as their owner",
            directory,
            failures[-1],
            directory,
        )


def _entries(directory: Path, failures: list[OSError]) -> Iterator[tuple[str, int]]:
    """Paths and modes of directories and regular files, no symbolic links."""
    mode = _mode(directory, failures)
    if mode is not None:
        yield str(directory), stat.S_IMODE(mode)
    for path, mode in _listed(directory, failures):
        if stat.S_ISREG(mode):
            yield str(path), stat.S_IMODE(mode)
    for name in _OURS:
        mode = _mode(directory / name, failures)
        if mode is not None and stat.S_ISDIR(mode):
            yield from _everything(directory / name, mode, failures)


def _everything(directory: Path, mode: int, failures: list[OSError]) -> Iterator[tuple[str, int]]:
    yield str(directory), stat.S_IMODE(mode)
    for path, found in _listed(directory, failures):
        if stat.S_ISDIR(found):
            yield from _everything(path, found, failures)
        elif stat.S_ISREG(found):
            yield str(path), stat.S_IMODE(found)


def _listed(directory: Path, failures: list[OSError]) -> Iterator[tuple[Path, int]]:
    """Nothing of a directory that may not be listed, such as `lost+found` of a file system of its own."""
    try:
        with os.scandir(directory) as found:
            paths = [directory / entry.name for entry in found]
    except OSError as error:
        _note(error, failures)
        return
    for path in paths:
        mode = _mode(path, failures, follow=False)
        if mode is not None:
            yield path, mode


def _mode(path: Path, failures: list[OSError], *, follow: bool = True) -> int | None:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as error:
        _note(error, failures)
        return None


def _note(error: OSError, failures: list[OSError]) -> None:
    if not isinstance(error, FileNotFoundError):  # what was removed meanwhile is open to no one
        failures.append(error)
