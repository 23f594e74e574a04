"""A stand-in for the Kafka installation that some of librdkafka's tests call: KAFKA_PATH.

    bin/kafka-topics.sh      creates, alters and deletes topics over the protocol (see kafka_topics.py)
    bin/kafka-acls.sh        adds and removes ACLs over the protocol (see kafka_acls.py)
    bin/kafka-run-class.sh   runs a Java program with Kafka's Java client
    libs/                    that client with what it needs, from the Java package registry

Without Java, or without Maven to fetch the client, the tests with a Java program are skipped.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tools.conformance.workspace import KAFKA_CLIENTS_VERSION, Workspace

ADMIN_CLIENT = "CONFORMANCE_ADMIN_CLIENT"
"""Environment variable: settings, as JSON, with which the stand-ins for Kafka's scripts connect."""

JAVA_TOOLS = ("java", "javac", "mvn")

_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>posthouse</groupId>
  <artifactId>conformance</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-clients</artifactId>
      <version>{KAFKA_CLIENTS_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    directory = workspace.root / "kafka-path"
    python, here = shlex.quote(sys.executable), shlex.quote(str(Path.cwd()))
    for name in ("topics", "acls"):
        command = f'cd {here} && exec {python} -m tools.conformance.kafka_{name} "$@"'
        _script(directory, f"kafka-{name}.sh", command)
    _script(directory, "kafka-run-class.sh", 'exec java -cp "$CLASSPATH:$KAFKA_PATH/libs/*" "$@"')
    if missing_for_java():
        say(f"without {', '.join(missing_for_java())}: tests with a Java program will be skipped")
    elif not list((directory / "libs").glob(f"kafka-clients-{KAFKA_CLIENTS_VERSION}.jar")):
        say("fetching Kafka's Java client")
        shutil.rmtree(directory / "libs", ignore_errors=True)
        (directory / "pom.xml").write_text(_POM)
        workspace.run(
            "download-kafka-clients",
            ["mvn", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=libs"],
            cwd=directory,
        )
    return directory


def admin_client(address: str) -> AdminClient:
    """For the scripts: logged in where the run says how."""
    return AdminClient({"bootstrap.servers": address} | json.loads(os.environ.get(ADMIN_CLIENT, "{}")))


def missing_for_java() -> list[str]:
    return [tool for tool in JAVA_TOOLS if shutil.which(tool) is None]


def _script(directory: Path, name: str, line: str) -> None:
    script = directory / "bin" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)
