"""File modes of the data directory: access for its owner only.

The catalog has password verifiers, segments and journal have messages. All files are created with these
modes, whatever the umask is. `tighten` corrects modes that an older version or another program left more
open.
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
    """Remove access of group and others; logs it once.

    Covers the files of the directory and everything in `journal`, `set-aside` and `topics`. Other directories
    in it (an archive, for example) belong to the user. Paths that cannot be changed or listed are reported;
    they do not prevent the start.
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
    """Paths and modes of directories and regular files, without symbolic links."""
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
    """The entries of a directory; none if it may not be listed, such as `lost+found`."""
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
    if not isinstance(error, FileNotFoundError):  # a file that was removed meanwhile needs no change
        failures.append(error)
