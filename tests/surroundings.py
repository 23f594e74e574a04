"""The same surroundings for every run: nothing of a user's shell or home directory reaches the tests.

What decides how a registry of packages is reached (proxies, certificates, npm's own settings) stays as it is.
Caches of the tests are in `build/`: another program's Maven or Ivy cache may be damaged or incomplete.
"""

from collections.abc import MutableMapping
from pathlib import Path

HOME = Path(__file__).parent.parent / "build" / "tests" / "home"

_DROPPED = frozenset(
    {
        "_JAVA_OPTIONS",
        "CLASSPATH",
        "FORCE_COLOR",
        "IVY_HOME",
        "JAVA_HOME",
        "JAVA_OPTS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "NO_COLOR",
        # With it every process that a test starts would compile the package again.
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONWARNINGS",
    }
)
_DROPPED_PREFIXES = ("AWS_", "HADOOP_", "HIVE_", "MAVEN_", "OTEL_", "POSTHOUSE_", "XDG_", "YARN_")
_SPARK_PREFIXES = ("PYSPARK_", "SPARK_")
# What a test run may be told.
_KEPT = frozenset(
    {
        "POSTHOUSE_CLUSTER",
        "POSTHOUSE_DATABASES",
        "POSTHOUSE_FRAMEWORKS",
        "POSTHOUSE_JAVA",
        "POSTHOUSE_KILLS",
        "POSTHOUSE_LONG",
        "POSTHOUSE_PURE",
        "POSTHOUSE_QUEUE_KILLS",
        "POSTHOUSE_SEED",
        "POSTHOUSE_SPARK_SESSION",
        "POSTHOUSE_TEST_AMQP",
    }
)


def isolate(environment: MutableMapping[str, str]) -> None:
    """Calling it again changes nothing."""
    # Under spark-submit these variables are how the program finds the JVM that started it.
    is_submitted = "PYSPARK_GATEWAY_PORT" in environment
    prefixes = _DROPPED_PREFIXES if is_submitted else _DROPPED_PREFIXES + _SPARK_PREFIXES
    for name in list(environment):
        if name not in _KEPT and (name in _DROPPED or name.startswith(prefixes)):
            del environment[name]
    before = environment.get("HOME")
    if before and before != str(HOME):
        environment.setdefault("NPM_CONFIG_USERCONFIG", str(Path(before) / ".npmrc"))
    HOME.mkdir(parents=True, exist_ok=True)
    environment["HOME"] = str(HOME)
    # Java takes the home directory, where Ivy and Maven have their caches, from the user database and not
    # from HOME.
    environment["SPARK_SUBMIT_OPTS"] = f"-Duser.home={HOME}"
    # Nothing listens on the network, and a host name that does not resolve does no harm.
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
