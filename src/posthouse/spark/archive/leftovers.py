"""Removal of unused files: those of crashed runs, and those merged long ago."""

import time
from dataclasses import dataclass

from posthouse.spark.archive.manifest import DIRECTORY, Change, Manifest

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """How long unused files are kept."""

    leftover_ms: int = DAY_MS
    """For files that no version names. A run that takes longer than this would lose its files."""
    retired_ms: int = DAY_MS
    """For replaced files. A reader that takes longer than this may miss some."""


def sweep(manifest: Manifest, grace: Grace, *, now_ms: int | None = None) -> list[str]:
    """Remove unused files; returns their paths. A sweep that crashed is completed by the next one."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    # Listed first: files added to the manifest meanwhile are younger than any leftover.
    stored = manifest.root.stored()
    manifest.refresh()
    state = manifest.state
    gone = []
    for file in stored:
        if file.path in state.files or file.path in state.retired:
            continue
        if file.path.startswith(f"{DIRECTORY}/") and file.path.endswith(".json"):
            if manifest.is_outdated(file.path) and file.changed_ms < now - grace.retired_ms:
                gone.append(file.path)
        elif file.changed_ms < now - grace.leftover_ms:
            gone.append(file.path)
    retired = [path for path, since in state.retired.items() if since <= now - grace.retired_ms]
    manifest.root.remove([*gone, *retired])
    if retired:
        manifest.commit(Change(forget=retired), run="sweep", now_ms=now)
    return [*gone, *retired]
