"""The broker that AMQP suites talk to: a fresh one, or one that is there already."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tools.conformance.broker import broker
from tools.conformance.workspace import SetupError, Workspace

AMQP_PORT = 5672
"""Some suites have it written into their tests, with the user guest and the password guest."""


@contextmanager
def amqp_broker(workspace: Workspace, suite: str, given: str | None, listen: str) -> Iterator[str]:
    """Where it listens. A suite that insists on an address asks for it; it must be free then."""
    insists = listen.endswith(f":{AMQP_PORT}")
    if given is not None:
        if insists and not given.endswith(f":{AMQP_PORT}"):
            raise SetupError(
                f"the tests of {suite} connect to port {AMQP_PORT} only; let the broker listen there."
            )
        yield given
        return
    if insists and _is_taken():
        raise SetupError(
            f"the tests of {suite} connect to port {AMQP_PORT} only, and something else listens there;"
            " stop it first."
        )
    with broker(workspace, suite, amqp=listen) as served:
        yield served.amqp
        if not served.alive:
            raise SetupError(f"the broker ended during the tests; see {served.log}")


def _is_taken() -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", AMQP_PORT)) == 0
