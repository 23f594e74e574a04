"""Runners of sagas on a broker: progress in the log, timeouts, several runners, and what people see."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.client.cluster import Cluster
from posthouse.client.errors import NotAllowed
from posthouse.client.group_reading import GroupReading
from posthouse.consistency.errors import BadMessage, BadSaga, Superseded
from posthouse.consistency.saga import WAIT, Saga, SagaClient, SagaRunner, StepCall, StepFailed
from posthouse.consistency.saga import machine as machine_module
from posthouse.consistency.saga.events import Start
from posthouse.consistency.saga.machine import Change, Machine
from posthouse.consistency.saga.partition import SagaPartition
from posthouse.consistency.saga.topics import create_topics
from posthouse.testing import ThreadBroker
from tests.consistency.relays import until, values


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadBroker]:
    with ThreadBroker(auto_create_topics=True) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"s{abs(hash(request.node.nodeid))}"


@contextmanager
def running(broker: ThreadBroker, saga: Saga) -> Iterator[SagaRunner]:
    runner = SagaRunner(saga, kafka=broker.kafka, admin=broker.admin, partitions=2)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop.set()
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def starter(broker: ThreadBroker, name: str) -> Iterator[SagaClient]:
    with SagaClient(name, kafka=broker.kafka, partitions=2) as client:
        yield client


def status(broker: ThreadBroker, name: str, id: str) -> str:
    with AdminClient(broker.admin) as admin:
        found = (
            list(admin.items(f"/v1/sagas/{name}"))
            if any(each["name"] == name for each in admin.items("/v1/sagas"))
            else []
        )
    return next((str(each["status"]) for each in found if each["id"] == id), "none")


class Services:
    """Steps that note what they are called with."""

    def __init__(self, failing: Sequence[str] = (), waiting: Sequence[str] = ()) -> None:
        self.calls: list[str] = []
        self.keys: list[str] = []
        self._failing = failing
        self._waiting = waiting

    def act(self, call: StepCall) -> object:
        self.calls.append(call.step)
        self.keys.append(call.key)
        if call.step in self._failing:
            raise StepFailed(f"no {call.step}")
        call.send(f"{call.saga}-commands", {"do": call.step, "for": call.input}, key=call.id)
        return WAIT if call.step in self._waiting else {"done": call.step}

    def undo(self, call: StepCall) -> None:
        self.calls.append(f"-{call.step}")

    def saga(self, name: str, timeout: float | None = None) -> Saga:
        saga = Saga(name)
        for step in ("reserve", "pay", "ship"):
            saga.step(step, self.act, compensate=self.undo, timeout=timeout)
        return saga


def test_all_steps(broker: ThreadBroker, name: str) -> None:
    services = Services()
    with starter(broker, name) as sagas, running(broker, services.saga(name)):
        sagas.start("order-7", "tea")
        sagas.start("order-7", "again")
        until(lambda: status(broker, name, "order-7") == "completed")
        assert services.calls == ["reserve", "pay", "ship"]
        assert services.keys == [f"{name}/order-7/{step}" for step in services.calls]
        sagas.start("order-8")
        until(lambda: status(broker, name, "order-8") == "completed")
    with AdminClient(broker.admin) as admin, Client(broker.kafka) as client:
        shown = admin.get(f"/v1/sagas/{name}/order-7")
        assert (shown["input"], shown["step"], shown["error"]) == ("tea", None, None)
        assert shown["results"] == {step: {"done": step} for step in ("reserve", "pay", "ship")}
        assert len(values(client, f"{name}-commands")) == 6
        [kind] = [each for each in admin.items("/v1/sagas") if each["name"] == name]
        assert kind["sagas"] == {"completed": 2}


def test_a_step_that_fails(broker: ThreadBroker, name: str) -> None:
    services = Services(failing=["ship"])
    with starter(broker, name) as sagas, running(broker, services.saga(name)):
        sagas.start("1")
        until(lambda: status(broker, name, "1") == "compensated")
    assert services.calls == ["reserve", "pay", "ship", "-pay", "-reserve"]
    with AdminClient(broker.admin) as admin:
        [summary] = admin.items(f"/v1/sagas/{name}", status="compensated")
        assert (summary["id"], summary["error"]) == ("1", "no ship")
        assert list(admin.items(f"/v1/sagas/{name}", status="running")) == []


def test_a_step_that_waits(broker: ThreadBroker, name: str) -> None:
    services = Services(waiting=["pay"])
    with starter(broker, name) as sagas, running(broker, services.saga(name)):
        for id in ("good", "bad"):
            sagas.start(id)
            until(lambda id=id: status(broker, name, id) == "waiting")  # type: ignore[misc]
        sagas.reply("good", "ship", "not asked for")
        sagas.reply("good", "pay", {"receipt": 4711})
        sagas.fail("bad", "pay", "no money")
        until(lambda: status(broker, name, "good") == "completed")
        until(lambda: status(broker, name, "bad") == "compensated")
    with AdminClient(broker.admin) as admin:
        assert admin.get(f"/v1/sagas/{name}/good")["results"]["pay"] == {"receipt": 4711}
        assert admin.get(f"/v1/sagas/{name}/bad")["error"] == "no money"
    assert services.calls.count("-reserve") == 1 and "-pay" not in services.calls


def test_a_timeout(broker: ThreadBroker, name: str) -> None:
    """Also while no runner is there. A reply that comes after it changes nothing."""
    services = Services(waiting=["pay"])
    with starter(broker, name) as sagas:
        with running(broker, services.saga(name, timeout=3)):
            sagas.start("1")
            until(lambda: status(broker, name, "1") == "waiting")
        with AdminClient(broker.admin) as admin:
            deadline = admin.get(f"/v1/sagas/{name}/1")["deadline_ms"]
        assert deadline > time.time() * 1000 - 60_000
        until(lambda: time.time() * 1000 > deadline)
        with running(broker, services.saga(name, timeout=3)):
            until(lambda: status(broker, name, "1") == "compensated")
            sagas.reply("1", "pay")
            sagas.start("2")
            until(lambda: status(broker, name, "2") == "waiting")
    assert services.calls[:4] == ["reserve", "pay", "-pay", "-reserve"], "it may have been done"
    assert status(broker, name, "1") == "compensated"


def test_errors_are_tried_again(broker: ThreadBroker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "FIRST_PAUSE", 0.05)
    attempts: list[str] = []

    def flaky(call: StepCall) -> None:
        attempts.append(f"{call.step} {call.attempt}")
        if call.attempt < 3:
            raise OSError("not now")

    def refused(call: StepCall) -> None:
        raise StepFailed("no")

    saga = Saga(name).step("a", flaky, compensate=flaky).step("b", refused)
    with starter(broker, name) as sagas, running(broker, saga):
        sagas.start("1")
        until(lambda: status(broker, name, "1") == "compensated")
    assert attempts == ["a 1", "a 2", "a 3"] * 2


def test_two_runners_share_the_work(broker: ThreadBroker, name: str) -> None:
    first, second = Services(), Services()
    with starter(broker, name) as sagas, running(broker, first.saga(name)):
        for number in range(6):
            sagas.start(str(number))
        with running(broker, second.saga(name)):
            for number in range(6, 30):
                sagas.start(str(number))
            for number in range(30):
                until(lambda number=number: status(broker, name, str(number)) == "completed")  # type: ignore[misc]
    assert len(set(first.keys + second.keys)) == 90


def test_of_two_that_believe_to_have_a_partition_one_is_refused(broker: ThreadBroker, name: str) -> None:
    saga = Services().saga(name)
    machine = Machine(saga, lambda: 0, lambda *_: None)
    with Client(broker.kafka) as client:
        create_topics(client, name, 1)
        events, states = client.topic(saga.events_topic), client.topic(saga.state_topic)
    cluster = Cluster(broker.kafka, timeout=30)
    change = machine.handle("1", None, Start())
    assert change is not None
    old = SagaPartition(cluster, saga, events, states, 0)
    new = SagaPartition(cluster, saga, events, states, 0)
    new.commit(0, change)
    new.check()
    with pytest.raises(Superseded):
        old.check()
    with pytest.raises(Superseded):
        old.commit(0, change)
    with pytest.raises(Superseded):
        old.commit(7, change)
    again = SagaPartition(cluster, saga, events, states, 0)
    assert again.is_done(0) and not again.is_done(1) and again.state("1") == change.state
    with Client(broker.kafka) as client:
        assert len(values(client, saga.state_topic)) == 1
    for each in (old, new, again):
        each.close()
    cluster.close()


def test_what_cannot_be_written_is_an_error_of_its_step(
    broker: ThreadBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And holds up no other saga."""
    monkeypatch.setattr(machine_module, "FIRST_PAUSE", 0.05)
    attempts: list[int] = []

    def send(call: StepCall) -> object:
        attempts.append(call.attempt)
        if call.id == "1":
            call.send(f"{name}-small", "x" * 5000)
        if call.id == "4":
            call.send(f"{name}-small", "x", headers={"\ud800": "x"})
        return "x" * 5_000_000 if call.id == "2" else None

    with Client(broker.kafka) as client:
        client.create_topic(f"{name}-small", settings={"max.message.bytes": "1000"})
    services = Services()
    saga = Saga(name).step("a", services.act, compensate=services.undo).step("b", send, attempts=2)
    with starter(broker, name) as sagas, running(broker, saga):
        for id in ("1", "2", "4", "3"):
            sagas.start(id)
        until(lambda: status(broker, name, "3") == "completed")
        for id in ("1", "2", "4"):
            until(lambda id=id: status(broker, name, id) == "compensated")  # type: ignore[misc]
    assert sorted(attempts) == [1, 1, 1, 1, 2, 2, 2] and services.calls.count("-a") == 3
    with AdminClient(broker.admin) as admin:
        assert "is refused" in admin.get(f"/v1/sagas/{name}/1")["error"]


def test_states_that_cannot_be_written_hold_up_no_other_saga(broker: ThreadBroker, name: str) -> None:
    def act(call: StepCall) -> object:
        if call.id == "fails":
            raise ValueError("x" * 900)
        return WAIT if call.id == "waits" else None

    saga = Saga(name).step("a", act, compensate=lambda _: None, attempts=1)
    with Client(broker.kafka) as client:
        settings = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
        client.create_topic(f"saga.{name}.state", partitions=1, settings=settings)
        create_topics(client, name, 1)
    with starter(broker, name) as sagas, running(broker, saga):
        sagas.start("never", "x" * 2000)
        sagas.start("fails", "x" * 500)
        sagas.start("waits")
        until(lambda: status(broker, name, "waits") == "waiting")
        sagas.reply("waits", "a", "x" * 2000)
        sagas.start("good")
        until(lambda: status(broker, name, "good") == "completed")
        for id in ("fails", "waits"):
            until(lambda id=id: status(broker, name, id) == "compensated")  # type: ignore[misc]
    assert status(broker, name, "never") == "none"
    with AdminClient(broker.admin) as admin:
        shown = admin.get(f"/v1/sagas/{name}/fails")
        assert shown["input"] == "x" * 500 and "larger than its topic takes" in shown["error"]


def test_a_start_is_not_lost_while_a_permission_is_missing(
    broker: ThreadBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SagaPartition.commit
    refusals = [NotAllowed("you may not write to the topic of states", 29) for _ in range(2)]

    def refusing(partition: SagaPartition, offset: int, change: Change) -> None:
        if refusals:
            raise refusals.pop()
        commit(partition, offset, change)

    monkeypatch.setattr(SagaPartition, "commit", refusing)
    with starter(broker, name) as sagas, running(broker, Services().saga(name)):
        sagas.start("1")
        until(lambda: status(broker, name, "1") == "completed")
    assert refusals == []


def test_heartbeats_come_between_the_events_of_a_batch(
    broker: ThreadBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps may be slow: otherwise the group would give the partitions to another member."""
    seen: list[str] = []
    beat = GroupReading._beat_when_due

    def beating(reading: GroupReading) -> None:
        seen.append("beat")
        beat(reading)

    monkeypatch.setattr(GroupReading, "_beat_when_due", beating)
    monkeypatch.setattr(GroupReading, "is_beat_due", property(lambda _: True))
    saga = Saga(name).step("a", lambda call: seen.append(call.id))
    with starter(broker, name) as sagas:
        for number in range(6):
            sagas.start(str(number))
        with running(broker, saga):
            for number in range(6):
                until(lambda number=number: status(broker, name, str(number)) == "completed")  # type: ignore[misc]
    called = [index for index, what in enumerate(seen) if what != "beat"]
    assert sorted(seen[index] for index in called) == [str(number) for number in range(6)]
    # Two partitions: one event of each in a round.
    assert all("beat" in seen[first:third] for first, third in zip(called, called[2:], strict=False))


def test_what_is_no_event_is_left_out(broker: ThreadBroker, name: str) -> None:
    services = Services()
    with starter(broker, name) as sagas, Client(broker.kafka) as client:
        sagas.start("1")
        with client.producer(f"saga.{name}.events") as producer:
            producer.send(b"nonsense", b"1")
            producer.send(b'{"type":"start"}')
            producer.send(b'{"type":"advance","version":1}', b"unknown")
        with client.producer(f"saga.{name}.state") as producer:
            producer.send(b"nonsense", b"1")
        with running(broker, services.saga(name)):
            until(lambda: status(broker, name, "1") == "completed")
    assert services.calls == ["reserve", "pay", "ship"]


def test_what_cannot_be(broker: ThreadBroker, name: str) -> None:
    with pytest.raises(BadSaga, match="no name of a saga"):
        Saga("a saga")
    with pytest.raises(BadSaga, match="has a step 'a' already"):
        Saga("s").step("a", print).step("a", print)
    with pytest.raises(BadSaga, match="a timeout above 0"):
        Saga("s").step("a", print, timeout=0)
    with pytest.raises(BadSaga, match="has no steps"):
        SagaRunner(Saga("s"), kafka="127.0.0.1:1", admin="127.0.0.1:1")
    with starter(broker, name) as sagas:
        with pytest.raises(BadMessage, match="1 to 200 characters"):
            sagas.start("")
        with pytest.raises(BadMessage, match="possible in JSON"):
            sagas.start("1", object())
        with pytest.raises(BadMessage, match="possible in JSON"):
            sagas.start("\ud800")
    with Client(broker.kafka) as client:
        client.create_topic(f"saga.{name}-x.events", partitions=3)
        with pytest.raises(BadSaga, match="the same number"):
            create_topics(client, f"{name}-x", 2)


def test_a_runner_of_another_version(broker: ThreadBroker, name: str) -> None:
    with starter(broker, name) as sagas:
        with running(broker, Services(waiting=["reserve"]).saga(name)):
            sagas.start("1")
            until(lambda: status(broker, name, "1") == "waiting")
        sagas.reply("1", "reserve")
        changed = SagaRunner(Saga(name).step("another", print), kafka=broker.kafka, admin=broker.admin)
        with pytest.raises(BadSaga, match="which this runner does not have"):
            changed.run()
