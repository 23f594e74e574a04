"""CPU time of a process and its children."""

from pathlib import Path

from bench.processes import TICKS


def cpu_of_tree(pid: int) -> float:
    """Seconds of a process, its children, and those children that have ended. Raises LookupError."""
    own = _times(pid)
    if own is None:
        raise LookupError("the process has ended")
    children = [_times(child) for child in _children(pid)]
    return sum(own) + sum(sum(each[:2]) for each in children if each is not None)


def _children(pid: int) -> list[int]:
    processes = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [each for each in processes if (fields := _fields(each)) is not None and int(fields[1]) == pid]


def _times(pid: int) -> tuple[float, ...] | None:
    """User, system, and both of the children that have ended. None if the process has."""
    fields = _fields(pid)
    return None if fields is None else tuple(int(each) / TICKS for each in fields[11:15])


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
