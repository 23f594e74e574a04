"""The commit of this checkout, for pages with figures: what was measured or tested."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PAGES = ":(exclude)docs"


def commit() -> str:
    """The one that is checked out, and whether anything but its pages differs from it."""
    name = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    # The figures of an earlier run are in a page that may not be committed yet.
    return f"{name} with changes that are not committed" if _git("status", "--porcelain", _PAGES) else name


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
