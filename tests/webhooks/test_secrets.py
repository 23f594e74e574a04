"""Secrets: rotation, at rest, and after a restart."""

import base64
import stat
from pathlib import Path

import pytest
import standardwebhooks

from posthouse.broker.webhooks.secret_texts import parsed_secret, shown_secret
from posthouse.model.errors import InvalidCredential
from posthouse.testing import AsyncBroker
from tests.webhooks.receivers import Received, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, produce, until, webhook


def is_verified(secret: bytes, received: Received) -> bool:
    try:
        standardwebhooks.Webhook(shown_secret(secret)).verify(received.body, received.headers)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


async def test_both_secrets_sign_while_one_is_rotated() -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        old = await broker.webhooks.create(webhook(endpoint.url))
        new = await broker.webhooks.rotate("hook", valid_ms=3_600_000)
        await produce(broker, (None, b"1"))
        received = (await endpoint.got(1))[0]
        assert len(received.headers["webhook-signature"].split()) == 2
        assert is_verified(old, received) and is_verified(new, received)
        newest = await broker.webhooks.rotate("hook", valid_ms=0)
        await produce(broker, (None, b"2"))
        received = (await endpoint.got(2))[1]
        assert len(received.headers["webhook-signature"].split()) == 1
        assert is_verified(newest, received)
        assert not is_verified(old, received) and not is_verified(new, received)


async def test_secrets_are_encrypted_on_disk_and_work_after_a_restart(tmp_path: Path) -> None:
    async with receiver() as endpoint:
        async with pushing_broker(data=tmp_path) as started:
            await create_topic(started.app.broker)
            secret = await started.app.broker.webhooks.create(webhook(endpoint.url))
        key_file = tmp_path / "secrets.key"
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        forms = (secret, base64.b64encode(secret), secret.hex().encode())
        for file in tmp_path.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert not any(each in content for each in forms), file
        async with pushing_broker(data=tmp_path) as started:
            await produce(started.app.broker, (None, b"1"))
            [received] = await endpoint.got(1)
            assert is_verified(secret, received)


async def test_without_its_key_nothing_is_pushed_and_that_is_said(tmp_path: Path) -> None:
    async with receiver() as endpoint:
        async with pushing_broker(data=tmp_path) as started:
            await create_topic(started.app.broker)
            await started.app.broker.webhooks.create(webhook(endpoint.url))
        (tmp_path / "secrets.key").unlink()
        async with pushing_broker(data=tmp_path) as started:
            await produce(started.app.broker, (None, b"1"))
            assert "secrets.key is missing" in await _trouble(started)
        (tmp_path / "secrets.key").write_bytes(base64.b64encode(bytes(32)))
        async with pushing_broker(data=tmp_path) as started:
            assert "encrypted with another key" in await _trouble(started)
            assert not endpoint.received
            secret = await started.app.broker.webhooks.rotate("hook", valid_ms=0)
            [received] = await endpoint.got(1)
            assert is_verified(secret, received)


async def _trouble(started: AsyncBroker) -> str:
    webhooks = started.app.broker.webhooks

    def is_in_trouble() -> bool:
        state = webhooks.state("hook")
        return state is not None and state.trouble is not None

    await until(is_in_trouble)
    state = webhooks.state("hook")
    assert state is not None and state.trouble is not None
    return state.trouble


async def test_a_key_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(base64.b64encode(b"k" * 32).decode() + "\n")
    async with pushing_broker(secrets_key_file=file) as started, receiver() as endpoint:
        await create_topic(started.app.broker)
        await started.app.broker.webhooks.create(webhook(endpoint.url))
        await produce(started.app.broker, (None, b"1"))
        await endpoint.got(1)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_!!!!", "whsec_" + "YQ==", "secret"])
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(InvalidCredential):
        parsed_secret(text)


def test_secrets_are_written_as_they_are_read() -> None:
    assert parsed_secret(shown_secret(b"x" * 32)) == b"x" * 32
