"""Half messages with a callback: what the transaction has done is what consumers see, whoever dies."""

import asyncio
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.half_messages import checks
from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import BrokerUnreachable, CallRefused
from posthouse.consistency import (
    AsyncHalfMessages,
    BadMessage,
    DecidedOtherwise,
    Decision,
    HalfMessage,
    HalfMessages,
)
from posthouse.testing import ThreadBroker, running_broker
from tests.consistency.half_process import was_committed
from tests.consistency.relays import until, values
from tests.postgres import free_port
from tests.served import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadBroker]:
    patch = pytest.MonkeyPatch()
    patch.setattr(checks, "CHECK_SECONDS", 0.5)
    with running_broker() as running:
        yield running
    patch.undo()


@pytest.fixture
def topic(topic: str, client: Client) -> str:
    client.create_topic(topic, partitions=2)
    return topic


class Answers:
    """A callback, and what it was asked."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[HalfMessage] = []

    def __call__(self, message: HalfMessage) -> Decision:
        self.asked.append(message)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]


def undecided(broker: ThreadBroker, group: str) -> int:
    with AdminClient(broker.admin) as admin:
        return int(admin.get("/v1/half-messages", group=group)["total"])


def left(broker: ThreadBroker, topic: str, name: str = "n", check_after: int = 0) -> None:
    """By an application that is gone."""
    half: dict[str, Any] = {"topic": topic, "group": topic, "name": name, "value": "v", "key": "k"}
    half["headers"] = [{"name": "h", "value": "x"}, {"name": "none"}]
    with AdminClient(broker.admin) as admin:
        admin.post("/v1/half-messages", half | {"check_after_seconds": check_after})


def test_the_end_of_the_block_decides(broker: ThreadBroker, client: Client, topic: str) -> None:
    answers = Answers(Decision.ROLL_BACK)
    with HalfMessages(broker.admin, group=topic, was_committed=answers) as half:
        with half.prepared(topic, {"id": 7}, key="ann", headers={"h": "x"}, name="order-7") as prepared:
            assert values(client, topic) == []
            assert prepared.message.name == "order-7"
        assert prepared.decision is Decision.COMMIT
        [message] = client.messages(topic)
        assert (message.key, message.value, ("h", b"x") in message.headers) == (b"ann", b'{"id":7}', True)
        with pytest.raises(ValueError, match="no tea"), half.prepared(topic, "no"):
            raise ValueError("no tea")
        assert len(answers.asked) == 1, "an error says nothing of the transaction: the callback does"
        with half.prepared(topic, "neither") as prepared:
            prepared.roll_back()
        with half.prepared(topic, "at once") as prepared:
            prepared.commit()
            assert sorted(values(client, topic)) == ["at once", '{"id":7}']
    assert sorted(values(client, topic)) == ["at once", '{"id":7}']
    assert undecided(broker, topic) == 0 and half.counts.rolled_back == 1


def test_an_error_after_the_commit_of_the_database(broker: ThreadBroker, client: Client, topic: str) -> None:
    with (
        HalfMessages(broker.admin, group=topic, was_committed=Answers(True)) as half,
        pytest.raises(OSError, match="the answer was lost"),
        half.prepared(topic, "stored"),
    ):
        raise OSError("the answer was lost")
    assert values(client, topic) == ["stored"]


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLL_BACK])
def test_what_an_application_has_left(
    decision: Decision, broker: ThreadBroker, client: Client, topic: str
) -> None:
    left(broker, topic)
    answers = Answers(decision)
    with HalfMessages(broker.admin, group=topic, was_committed=answers):
        until(lambda: undecided(broker, topic) == 0)
    [asked] = answers.asked
    assert (asked.name, asked.topic, asked.key, asked.value) == ("n", topic, b"k", b"v")
    assert list(asked.headers) == [("h", b"x"), ("none", None)]
    assert values(client, topic) == (["v"] if decision is Decision.COMMIT else [])


def test_a_callback_that_does_not_know_is_asked_again(
    broker: ThreadBroker, client: Client, topic: str
) -> None:
    left(broker, topic)
    answers = Answers(ValueError("no database"), Decision.UNKNOWN, "nonsense", True)
    with HalfMessages(broker.admin, group=topic, was_committed=answers) as half:
        until(lambda: undecided(broker, topic) == 0)
    assert (len(answers.asked), half.counts.unknown, half.counts.committed) == (4, 3, 1)
    assert values(client, topic) == ["v"]


def test_messages_of_other_groups_are_none_of_its_business(broker: ThreadBroker, topic: str) -> None:
    left(broker, topic)
    left(broker, topic, "second")
    answers = Answers(True)
    with (
        HalfMessages(broker.admin, group=topic, was_committed=answers),
        HalfMessages(broker.admin, group=f"{topic}-other", was_committed=Answers(False)) as other,
    ):
        until(lambda: undecided(broker, topic) == 0)
    assert len(answers.asked) == 2 and other.counts.rolled_back == 0


def test_its_own_block_is_not_asked_about(broker: ThreadBroker, client: Client, topic: str) -> None:
    answers = Answers(False)
    with (
        HalfMessages(broker.admin, group=topic, was_committed=answers) as half,
        AdminClient(broker.admin) as admin,
        half.prepared(topic, "slow", check_after=0),
    ):
        until(lambda: admin.get("/v1/half-messages", group=topic)["items"][0]["checks"] >= 2)
    assert answers.asked == [] and values(client, topic) == ["slow"]


def test_a_check_that_was_faster_than_the_block(broker: ThreadBroker, client: Client, topic: str) -> None:
    """Another member has said that there is no such transaction."""
    with (
        HalfMessages(broker.admin, group=topic, was_committed=Answers(False)) as half,
        AdminClient(broker.admin) as admin,
        pytest.raises(DecidedOtherwise, match="rolled back, or parked before; a check has decided it"),
        half.prepared(topic, "late", name="n"),
    ):
        admin.post("/v1/half-messages/rollback", {"group": topic, "name": "n"})
    assert values(client, topic) == []


def test_what_is_refused(broker: ThreadBroker, topic: str) -> None:
    half = HalfMessages(broker.admin, group=topic, was_committed=Answers(False), patience=0.2)
    with half:
        with pytest.raises(CallRefused, match="there is no topic"), half.prepared("missing", "v"):
            pytest.fail("the block must not run")
        with pytest.raises(BadMessage, match="tombstone"), half.prepared(topic, None):
            pytest.fail("the block must not run")
        with half.prepared(topic, "1", name="n"):
            pass
        with pytest.raises(CallRefused, match="another half message"), half.prepared(topic, "2", name="n"):
            pytest.fail("the block must not run")
    nowhere = HalfMessages(
        f"127.0.0.1:{free_port()}", group=topic, was_committed=Answers(False), patience=0.2
    )
    with nowhere, pytest.raises(BrokerUnreachable), nowhere.prepared(topic, "v"):
        pytest.fail("the block must not run")


def test_many_threads(broker: ThreadBroker, client: Client, topic: str) -> None:
    with HalfMessages(broker.admin, group=topic, was_committed=Answers(False)) as half:

        def work(number: int) -> None:
            for each in range(5):
                with half.prepared(topic, f"{number} {each}"):
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(values(client, topic))) == 20


async def test_with_asyncio(broker: ThreadBroker, client: Client, topic: str) -> None:
    left(broker, topic)
    asked: list[str] = []

    async def callback(message: HalfMessage) -> Decision:
        asked.append(message.name)
        return Decision.COMMIT if message.name == "n" else Decision.ROLL_BACK

    async with AsyncHalfMessages(broker.admin, group=topic, was_committed=callback) as half:
        async with half.prepared(topic, "yes") as prepared:
            pass
        assert prepared.decision is Decision.COMMIT
        with pytest.raises(ValueError, match="no"):
            async with half.prepared(topic, "no", name="error"):
                raise ValueError("no")

        async def cancelled() -> None:
            async with half.prepared(topic, "cancelled", name="cancelled", check_after=0):
                begun.set()
                await asyncio.sleep(3600)

        begun = asyncio.Event()
        task = asyncio.create_task(cancelled())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        async with half.prepared(topic, "neither") as prepared:
            await prepared.roll_back()
        async with asyncio.timeout(60):
            while await asyncio.to_thread(undecided, broker, topic):
                await asyncio.sleep(0.05)
    assert sorted(asked) == ["cancelled", "error", "n"]
    assert sorted(values(client, topic)) == ["v", "yes"]


@pytest.mark.timeout(300)
def test_applications_and_the_broker_are_killed(tmp_path: Path) -> None:
    path, admin, kafka = str(tmp_path / "shop.db"), f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id text PRIMARY KEY, state text)")

    def started() -> ServedBroker:
        return ServedBroker(tmp_path / "data", kafka=kafka, admin=admin, amqp="off")

    served = started()
    with Client(kafka) as client:
        client.create_topic("orders", partitions=2)
    randomness = random.Random(5)
    for number, dies in enumerate(["prepared", "stored", "committed", "answered", "committed", "prepared"]):
        application = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.consistency.half_process",
                *(path, admin, str(number * 100), str(randomness.randrange(5, 20)), dies),
            ]
        )
        if number % 2:
            with sqlite3.connect(path, timeout=30) as connection:
                until(
                    lambda: (
                        connection.execute(
                            "SELECT 1 FROM orders WHERE id LIKE ?",
                            [f"order-{number}%"],  # noqa: B023
                        ).fetchone()
                        is not None
                    )
                )
            served.kill()
            served = started()
        assert application.wait(120) == (0 if dies == "answered" else -9)
    with (
        HalfMessages(admin, group="shop", was_committed=lambda message: was_committed(path, message)),
        AdminClient(admin) as asking,
    ):
        until(lambda: asking.get("/v1/half-messages")["total"] == 0)
    with sqlite3.connect(path) as connection:
        stored = [id for (id,) in connection.execute("SELECT id FROM orders WHERE state = 'paid'")]
    with Client(kafka) as client:
        found = values(client, "orders")
    served.kill()
    assert sorted(found) == sorted(stored) and len(found) > 30
