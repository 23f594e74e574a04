"""A file system without power is a new one when it is mounted again, whoever else has seen it."""

import subprocess
import tempfile
import threading
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


def test_the_mounts_of_another_process_are_waited_for(mount: LoopMount) -> None:
    script = "echo copied; read line"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"copied\n"
    mount.cut_power()
    ending = threading.Timer(0.3, other.communicate, [b"\n"])
    ending.start()
    mount.unmount()
    mount.mount()
    (mount.place / "written").write_bytes(b"there is power")
    ending.join()
