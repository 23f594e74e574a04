"""A small ext4 file system of its own on a loop device, whose power can be cut and which can become full."""

import fcntl
import os
import struct
import subprocess
import tempfile
from pathlib import Path

# Of linux/ext4.h: _IOR('X', 125, __u32), and the flag that drops what is not synced, the file system's own
# journal included.
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NOLOGFLUSH = struct.pack("I", 2)

_MIB = 1024 * 1024
_IMAGES = Path("/dev/shm")


class CannotMount(Exception):
    """Mounting needs root, loop devices and mkfs.ext4."""


class LoopMount:
    """Made by `open`, gone with `close`. The image is in memory if it can be: a sync is not what is slow."""

    def __init__(self, place: Path, *, mebibytes: int = 128) -> None:
        self.place = place
        self._bytes = mebibytes * _MIB
        self._image = Path()
        self._mounted = False

    def open(self) -> None:
        self._image = self._new_image()
        os.truncate(self._image, self._bytes)
        self.place.mkdir(parents=True, exist_ok=True)
        try:
            # With smaller blocks, as mkfs takes for small file systems, SQLite dies of SIGBUS when its shared
            # memory finds no space: it makes sure of its pages by one byte in each 4 KiB.
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", str(self._image))
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.place))
        self._mounted = True

    def unmount(self) -> None:
        _run("umount", str(self.place))
        self._mounted = False

    def cut_power(self) -> None:
        """From now on nothing reaches the disk. What is on it is there again after the next mount."""
        handle = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, _EXT4_IOC_SHUTDOWN, _NOLOGFLUSH)
        finally:
            os.close(handle)

    def restore_power(self) -> None:
        """What is on the disk is there again. A process with a mount namespace of its own, as `unshare` makes
        it, has a copy of the mount, and keeps the file system without power while it lives: then what is
        mounted is a copy of the disk."""
        self.unmount()
        if _run("losetup", "--associated", str(self._image)):
            copy = self._new_image()
            _run("cp", "--sparse=always", str(self._image), str(copy))
            self._image.unlink()
            self._image = copy
        self.mount()

    def _new_image(self) -> Path:
        handle, name = tempfile.mkstemp(
            prefix="posthouse-torture-", suffix=".ext4", dir=_IMAGES if _IMAGES.is_dir() else None
        )
        os.close(handle)
        return Path(name)

    def close(self) -> None:
        if self._mounted:
            self.unmount()
        self._image.unlink(missing_ok=True)


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise CannotMount(f"{command[0]} is not there") from None
    except subprocess.CalledProcessError as error:
        raise CannotMount(f"{' '.join(command)}: {error.stderr.strip()}") from None


def why_not() -> str | None:
    """What is in the way of mounting here; None if nothing is."""
    with tempfile.TemporaryDirectory(prefix="posthouse-torture-") as place:
        mount = LoopMount(Path(place), mebibytes=4)
        try:
            mount.open()
            mount.close()
        except (CannotMount, OSError) as error:
            return str(error)
    return None
