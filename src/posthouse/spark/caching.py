"""A cache directory of the user."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from posthouse.spark.errors import SparkError


class NoCache(SparkError):
    """There is no private cache directory."""


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's cache directory or, if it is not writable, a private one among the temporary files."""
    wanted = environment.get("XDG_CACHE_HOME")
    place = Path(wanted) if wanted else Path(environment.get("HOME") or "/nonexistent") / ".cache"
    try:
        (place / "posthouse").mkdir(parents=True, exist_ok=True)
    except OSError:
        pass
    else:
        if os.access(place / "posthouse", os.W_OK):
            return place / "posthouse"
    spare = Path(tempfile.gettempdir()) / f"posthouse-{os.getuid()}"
    spare.mkdir(mode=0o700, exist_ok=True)
    status = spare.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NoCache(f"{spare} belongs to another user; set XDG_CACHE_HOME to a directory of your own")
    return spare
