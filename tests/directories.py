"""Where tests put directories whose syncs need cost nothing, because they are not what is tested."""

from pathlib import Path

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""For the argument `dir` of `tempfile`; None is a directory on a disk."""
