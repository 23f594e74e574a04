"""Clients of the gRPC protocol, as RocketMQ's tool shows clients."""

import pytest

from posthouse.protocols.rocketmq.client_versions import language_of, version_number
from posthouse.protocols.rocketmq.clients import host_of


@pytest.mark.parametrize(
    ("text", "number"),
    [("4.9.8", 409), ("5.1.2", 437), ("v5.1.4", 441), ("5.5.0", 513), ("5.5.0-SNAPSHOT", 513)]
    + [(text, 0) for text in ("", "5", "5.1", "5.1.10", "3.2.6", "new")],
)
def test_versions(text: str, number: int) -> None:
    """As in the list of RocketMQ 5.5.0."""
    assert version_number(text) == number


@pytest.mark.parametrize(
    ("name", "language"),
    [("JAVA", "JAVA"), ("GOLANG", "GO"), ("DOT_NET", "DOTNET"), ("python", "PYTHON"), ("Swift", "OTHER")],
)
def test_languages(name: str, language: str) -> None:
    assert language_of(name) == language


@pytest.mark.parametrize(
    ("peer", "host"), [("10.0.0.1:4711", "/10.0.0.1"), ("[::1]:4711", "/::1"), ("", ""), ("?", "")]
)
def test_hosts(peer: str, host: str) -> None:
    assert host_of(peer) == host
