"""Certificates and names are verified."""

import ssl
from pathlib import Path

import pytest
import trustme

from posthouse.model.errors import InvalidConfig
from posthouse.testing import AsyncBroker
from tests.webhooks.receivers import receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook


def _server(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.mark.parametrize(("name", "works"), [("localhost", True), ("other.example", False)])
async def test_the_certificate_must_be_of_the_name(tmp_path: Path, name: str, works: bool) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trusted)
    async with (
        AsyncBroker(webhook_allow=("127.0.0.0/8", "::1/128"), webhook_ca=trusted) as started,
        receiver(tls=_server(authority, name)) as endpoint,
    ):
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(f"https://localhost:{endpoint.port}/hook"))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        assert [each.target for each in endpoint.received] == (["/hook"] if works else [])
        state = broker.webhooks.state("hook")
        assert state is not None
        if not works:
            assert state.last_failure is not None and "certificate" in state.last_failure.reason


async def test_an_authority_that_is_not_trusted_is_refused() -> None:
    async with (
        AsyncBroker(webhook_allow=("127.0.0.0/8", "::1/128")) as started,
        receiver(tls=_server(trustme.CA(), "localhost")) as endpoint,
    ):
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(f"https://localhost:{endpoint.port}/"))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        assert not endpoint.received


async def test_authorities_that_cannot_be_read_are_told_at_the_start(tmp_path: Path) -> None:
    from posthouse.app import check_app
    from posthouse.settings import Settings

    with pytest.raises(InvalidConfig, match="webhook_ca"):
        check_app(Settings(webhook_ca=tmp_path / "none.pem"))
