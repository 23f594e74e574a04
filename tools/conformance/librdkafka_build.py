"""librdkafka and its test runner, built from the source inside the npm package kafka-javascript."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.conformance.workspace import KAFKA_JAVASCRIPT_VERSION, SetupError, Workspace, unpack

PACKAGE = "@confluentinc/kafka-javascript"
CONFIGURE = ("./configure", "--disable-curl", "--disable-sasl")

_SKIPS_LOGINS = "test_needs_auth()"
_OURS_LOG_IN = "false /* our scripts log in */"

TOOLS = {"npm": "npm", "gcc": "gcc", "g++": "g++", "make": "make"}
HEADERS = {
    "/usr/include/zlib.h": "zlib1g-dev",
    "/usr/include/zstd.h": "libzstd-dev",
    "/usr/include/openssl/ssl.h": "libssl-dev",
    "/usr/include/rapidjson/document.h": "rapidjson-dev",
}
"""Debian's package for each. Without libzstd the tests that compress with it fail; without rapidjson those
that read statistics skip themselves."""


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    """The tests directory, with its test-runner built."""
    package = workspace.root / f"kafka-javascript-{KAFKA_JAVASCRIPT_VERSION}"
    source = package / "deps" / "librdkafka"
    built = source / "tests" / "built"
    if built.exists():
        return source / "tests"
    _install_missing(workspace, say)
    if not package.exists():
        say("fetching the source")
        unpack(_download(workspace), package)
    if not (source / "tests" / "test.c").exists():
        raise SetupError(f"{PACKAGE} {KAFKA_JAVASCRIPT_VERSION} has no librdkafka tests; pin another version")
    _let_scripts_log_in(source / "tests")
    jobs = f"-j{os.cpu_count() or 1}"
    say("configuring")
    workspace.run("configure-librdkafka", list(CONFIGURE), cwd=source)
    say("building the library (minutes)")
    workspace.run("build-librdkafka", ["nice", "make", jobs, "libs"], cwd=source)
    say("building the tests (minutes)")
    workspace.run("build-librdkafka-tests", ["nice", "make", jobs, "-C", "tests", "build"], cwd=source)
    built.touch()
    return source / "tests"


def library_version(tests: Path) -> str:
    header = (tests.parent / "src" / "rdkafka.h").read_text()
    found = re.search(r"#define RD_KAFKA_VERSION\s+0x(\w\w)(\w\w)(\w\w)", header)
    return ".".join(str(int(part, 16)) for part in found.groups()) if found else "unknown"


def _let_scripts_log_in(tests: Path) -> None:
    """Three tests skip themselves where clients log in, because Kafka's scripts would need to. Ours can."""
    for test in ("0109-auto_create_topics.cpp", "0115-producer_auth.cpp", "0119-consumer_auth.cpp"):
        text = (tests / test).read_text()
        if _OURS_LOG_IN in text:
            continue
        if text.count(_SKIPS_LOGINS) != 1:
            raise SetupError(f"{test} does not ask once whether clients log in; look at how it skips now")
        (tests / test).write_text(text.replace(_SKIPS_LOGINS, _OURS_LOG_IN))


def _download(workspace: Workspace) -> Path:
    archive = workspace.downloads / f"confluentinc-kafka-javascript-{KAFKA_JAVASCRIPT_VERSION}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{KAFKA_JAVASCRIPT_VERSION}"]
        workspace.run("download-librdkafka", command, cwd=workspace.downloads)
    if not archive.exists():
        raise SetupError(f"npm fetched something else than {archive.name}; see {workspace.logs}")
    return archive


def _install_missing(workspace: Workspace, say: Callable[[str], None]) -> None:
    tools = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    headers = [package for header, package in HEADERS.items() if not Path(header).exists()]
    if not tools and not headers:
        return
    packages = [*tools, *headers]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(packages)}")
        workspace.run("apt-get-update", ["apt-get", "update"])
        workspace.run(
            "apt-get-install",
            ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
            environment={"DEBIAN_FRONTEND": "noninteractive"},
        )
    elif tools:
        raise SetupError(f"librdkafka cannot be built here; install {', '.join(packages)} and try again.")
    else:
        say(f"building without {', '.join(headers)}: some tests will be skipped")
