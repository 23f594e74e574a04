"""Brokers whose clients log in, with a certificate of a test's authority."""

from collections.abc import Mapping
from typing import Any

from posthouse.testing import ThreadBroker, running_broker
from tests.certificates import Authority


def tls_broker(authority: Authority, users: Mapping[str, str], **settings: Any) -> ThreadBroker:
    """Served with TLS and without it. See `running_broker`."""
    identity = authority.issue()
    return running_broker(users=users, tls_certificate=identity.certificate, tls_key=identity.key, **settings)
