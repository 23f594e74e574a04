"""A file system without power is a new one when it is mounted again, whoever else has seen it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.mounts import LoopMount, why_not


@pytest.fixture
def mount() -> Iterator[LoopMount]:
    if (reason := why_not()) is not None:
        pytest.skip(f"a file system cannot be mounted here: {reason}")
    with tempfile.TemporaryDirectory(prefix="posthouse-torture-") as place:
        mount = LoopMount(Path(place) / "disk", mebibytes=16)
        mount.open()
        try:
            yield mount
        finally:
            mount.close()


@pytest.fixture
def other() -> Iterator[None]:
    """A process with copies of all mounts."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo copied; read line"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"copied\n"
    try:
        yield
    finally:
        process.communicate(b"\n")


@pytest.mark.usefixtures("mount", "other")
def test_power_is_restored_though_another_process_has_the_mount(mount: LoopMount) -> None:
    for number in range(3):
        with (mount.place / str(number)).open("wb") as file:
            file.write(b"synced")
            file.flush()
            os.fsync(file.fileno())
        mount.cut_power()
        mount.restore_power()
        assert [(mount.place / str(each)).read_bytes() for each in range(number + 1)] == [b"synced"] * (
            number + 1
        )


def test_what_was_not_synced_is_gone(mount: LoopMount) -> None:
    (mount.place / "file").write_bytes(b"not synced")
    mount.cut_power()
    mount.restore_power()
    assert not (mount.place / "file").exists()
