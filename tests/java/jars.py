"""Java clients of Kafka and RocketMQ: fetched by Maven into a repository of their own, and compiled programs
beside them.

Nothing of a user's Maven is used or changed: settings, local repository and home directory are under `build`.
A directory of jars is finished when its mark names what was asked for: a fetch that was interrupted, or was
for other artifacts, is begun again.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path(__file__).parents[2] / "build" / "java"

KAFKA_VERSION = "4.3.1"
CLIENTS = (f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",)
STREAMS = (*CLIENTS, f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}")
CONNECT = (
    *CLIENTS,
    f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
)
ROCKETMQ_4 = ("org.apache.rocketmq:rocketmq-client:4.9.8", "org.apache.rocketmq:rocketmq-acl:4.9.8")
"""The last of 4.x, with its logins, which are a part of the client since 5.0."""
ROCKETMQ_TOOLS = ("org.apache.rocketmq:rocketmq-tools:5.5.0",)
ROCKETMQ_GRPC = ("org.apache.rocketmq:rocketmq-client-java:5.2.0",)
ROCKETMQ_5 = ("org.apache.rocketmq:rocketmq-client:5.5.0",)
ROCKETMQ_SERVER = tuple(
    f"org.apache.rocketmq:rocketmq-{part}:5.5.0" for part in ("proxy", "broker", "namesrv", "tools", "client")
)
"""Name server, broker and proxy, to compare with; the client and its tools are the same as above."""
ROCKETMQ_TESTS = (
    "org.apache.rocketmq:rocketmq-test:5.5.0",
    "org.apache.rocketmq:rocketmq-test:5.5.0:tests",
    "junit:junit:4.13.2",
    "org.assertj:assertj-core:3.22.0",
    "io.grpc:grpc-testing:1.53.0",
    "org.mockito:mockito-core:4.11.0",
)
"""Upstream's integration tests, and what they use."""

_FETCH_SECONDS = 100
_TOOLS = ("java", "javac", "mvn")
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{classifier}
    </dependency>
"""
_CLASSIFIER = "\n      <classifier>{classifier}</classifier>"
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>posthouse</groupId>
  <artifactId>java-tests</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


class Unavailable(Exception):
    """Java, Maven or the jars are not to be had here."""


def fetched(name: str, artifacts: Sequence[str], cache: Path = CACHE) -> Path:
    """The directory with the jars of `artifacts`, as `group:name:version` with or without `:classifier`, and
    all that they need. Raises Unavailable."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"there is no {', '.join(missing)} on this machine")
    version = artifacts[0].rpartition(":")[2]
    directory = cache / f"{name}-{version}"
    mark = directory / "complete"
    wanted = "\n".join(artifacts)
    if mark.exists() and mark.read_text() == wanted:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(
        _POM.format(dependencies="".join(_dependency(each) for each in artifacts))
    )
    settings = cache / "settings.xml"
    settings.write_text("<settings/>\n")
    command = ["mvn", "--batch-mode", "--quiet", "--settings", str(settings)]
    command += [f"-Dmaven.repo.local={cache / 'repository'}", f"-DoutputDirectory={directory}"]
    try:
        run = subprocess.run(
            [*command, "dependency:copy-dependencies"],
            cwd=directory,
            env=_surroundings(cache),
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not fetch {', '.join(artifacts)} in {_FETCH_SECONDS} s") from None
    if run.returncode:
        raise Unavailable(
            f"Maven cannot fetch {', '.join(artifacts)}: {run.stdout[-500:]}{run.stderr[-500:]}"
        )
    mark.write_text(wanted)
    return directory


def compiled(source: Path, jars: Path, cache: Path = CACHE) -> str:
    """The class path to run the program with. It may use other sources of its directory."""
    classes = cache / "classes" / jars.name  # the same source is another program with other jars
    classes.mkdir(parents=True, exist_ok=True)
    path = f"{jars}/*"
    built = classes / f"{source.stem}.class"
    changed = max(each.stat().st_mtime for each in source.parent.rglob("*.java"))
    if not built.exists() or built.stat().st_mtime < changed:
        built.unlink(missing_ok=True)
        command = [
            "javac",
            "-nowarn",
            "-cp",
            path,
            "-sourcepath",
            str(source.parent),
            "-d",
            str(classes),
            str(source),
        ]
        run = subprocess.run(command, capture_output=True, text=True, env=_surroundings(cache), check=False)
        assert run.returncode == 0, run.stderr
    return f"{classes}:{path}"


def java(
    class_path: str,
    main: str,
    *arguments: str,
    home: Path | None = None,
    properties: Mapping[str, object] | None = None,
) -> list[str]:
    """The command that runs a program, small and quick to start. RocketMQ's clients have logs and offsets
    below the `home` directory."""
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    options += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    if home is not None:
        options.append(f"-Duser.home={home}")
    return ["java", *options, "-cp", class_path, main, *arguments]


def _dependency(artifact: str) -> str:
    group, name, version, *rest = artifact.split(":")
    classifier = "".join(_CLASSIFIER.format(classifier=each) for each in rest)
    return _DEPENDENCY.format(group=group, artifact=name, version=version, classifier=classifier)


def _surroundings(cache: Path) -> dict[str, str]:
    """Without what a user has set up for Java and Maven."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAVEN_", "JAVA_", "JDK_"))
    }
    home = cache / "home"
    home.mkdir(parents=True, exist_ok=True)
    return kept | {"MAVEN_SKIP_RC": "1", "MAVEN_OPTS": f"-Duser.home={home}", "HOME": str(home)}
