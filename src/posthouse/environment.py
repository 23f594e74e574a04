"""Which variables POSTHOUSE_… have a meaning, so that a misspelt one is an error and not ignored.

Every setting of the broker is one. The others are in `OTHERS`, the only list of them.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches

from posthouse.loaded_settings import ENVIRONMENT_PREFIX
from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings

OTHERS = frozenset(
    {
        # of the commands
        "ADMIN_ADDRESS",
        "BOOTSTRAP",
        "CA",
        "CERTIFICATE",
        "DEBUG",
        "KEY",
        "MECHANISM",
        "OUTBOX_DATABASE",
        "OUTBOX_TO",
        "PASSWORD",
        "PASSWORD_FILE",
        "PROFILE",
        "TLS",
        "USER",
        # of serve, besides its settings
        "CONFIG",
        # of the demonstration
        "DEMO_SECONDS",
        "ONLY",
        # of the tests; "PURE" also of the build
        "CLUSTER",
        "DATABASES",
        "FRAMEWORKS",
        "JAVA",
        "KILLS",
        "LONG",
        "PURE",
        "QUEUE_KILLS",
        "SEED",
        "SPARK_SESSION",
    }
)
_OF_TESTS = f"{ENVIRONMENT_PREFIX}TEST_"
# Kubernetes sets these in every container beside a service that is called posthouse or posthouse-…; some of
# the names could be misspelt settings, and are told by their values.
_OF_SERVICES = re.compile(r"\w+_(SERVICE_(HOST|PORT)(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)")
_OF_A_SERVICE_BY_VALUE = re.compile(r"(tcp|udp|sctp)://.+")


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InvalidConfig for a variable that means nothing."""
    names = [name for name in environment if name.startswith(ENVIRONMENT_PREFIX)]
    if not names:
        return
    known = {each.name.upper() for each in fields(Settings)} | OTHERS
    for name in sorted(names):
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        is_service = _OF_SERVICES.fullmatch(name) or _OF_A_SERVICE_BY_VALUE.fullmatch(environment[name])
        if rest in known or name.startswith(_OF_TESTS) or is_service:
            continue
        near = get_close_matches(rest, known, n=1)
        advice = f"did you mean {ENVIRONMENT_PREFIX}{near[0]}? Correct or unset it" if near else "unset it"
        raise InvalidConfig(f"the environment variable {name} means nothing to Posthouse; {advice}")
