"""Distribution of the process's file descriptors.

Every connection takes one, and so does every open segment. Connections beyond the limit would wait in the
system's accept queue, where the gate cannot choose among them, and segments could not be opened. So
connections and segments each have a share of their own.
"""

import logging
import resource
from dataclasses import dataclass

from posthouse.model.errors import InvalidConfig

log = logging.getLogger(__name__)

RESERVE = 64
"""For listeners, journal, catalog, event loop and short-lived files."""
_LEAST_FILES = 16
_MOST_FILES = 32_768
"""Maximum of open segments unless the setting is larger: more gain nothing."""
_LEAST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    connections: int
    files: int


def share_out(limit: int, *, max_connections: int, open_files: int) -> Descriptors:
    """With `open_files` 0, segments get what connections leave, from a quarter to half of all.

    Raises InvalidConfig if the limit is too small.
    """
    free = limit - RESERVE
    if open_files == 0:
        share = max(min(free // 2, free - max_connections), free // 4)
        open_files = min(max(share, _LEAST_FILES), _MOST_FILES)
    connections = min(max_connections, free - open_files)
    if connections < min(max_connections, _LEAST_CONNECTIONS):
        raise InvalidConfig(
            f"the system allows this process {limit} open files, not enough for {open_files} segments "
            "(open_files) and clients; allow more (ulimit -n, or LimitNOFILE of systemd), or lower open_files"
        )
    return Descriptors(connections=connections, files=open_files)


def allowed_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**20


def allow_many_descriptors() -> None:
    """Raise the limit of open files to the hard limit: the usual soft limit is meant for desktops."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays at %d and cannot be raised to %d: %s", soft, hard, error)
