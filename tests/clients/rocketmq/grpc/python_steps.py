"""The steps of `grpc_steps` with RocketMQ's client in Python."""

import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

DEADLINE = 90.0
ADDRESS, STEPS = sys.argv[1], sys.argv[3:]
CREDENTIALS = Credentials(os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET", ""))


def configuration() -> ClientConfiguration:
    return ClientConfiguration(ADDRESS, CREDENTIALS, request_timeout=30)  # the machine may be busy


def message(topic: str, body: str, tag: str | None = None) -> Message:
    made = Message()
    made.topic = topic
    made.body = body.encode()
    if tag is not None:
        made.tag = tag
    return made


class Committing(TransactionChecker):  # type: ignore[misc]  # its package has no types
    def check(self, message: Message) -> TransactionResolution:
        assert message.body == b"left behind", message.body
        return TransactionResolution.COMMIT


def producer(topic: str, checker: TransactionChecker | None = None) -> Producer:
    made = Producer(configuration(), (topic,), checker=checker or Committing())
    made.startup()
    return made


def send(topic: str, *messages: Message) -> None:
    client = producer(topic)
    for each in messages:
        client.send(each)
    client.shutdown()


def simple(
    topic: str, expression: FilterExpression | None = None, group: str | None = None
) -> SimpleConsumer:
    made = SimpleConsumer(
        configuration(), group or topic, {topic: expression or FilterExpression()}, await_duration=2
    )
    made.startup()
    return made


def received(consumer: SimpleConsumer, count: int) -> list[Message]:
    """All of them acknowledged."""
    late = time.monotonic() + DEADLINE
    found: list[Message] = []
    while len(found) < count:
        assert time.monotonic() < late, f"{len(found)} of {count} messages came"
        for each in consumer.receive(32, 20):
            consumer.ack(each)
            found.append(each)
    return found


def bodies(messages: Sequence[Message]) -> list[str]:
    return sorted(each.body.decode() for each in messages)


def only(consumer: SimpleConsumer, *wanted: str) -> None:
    """These, and no others that were sent before."""
    found = bodies(received(consumer, len(wanted)) + list(consumer.receive(32, 20)))
    assert found == sorted(wanted), found
    consumer.shutdown()


def exchange() -> None:
    messages = []
    for number in range(10):
        made = message("exchange", f"message {number}", "odd" if number % 2 else "even")
        made.keys = f"key{number}"
        made.add_property("tenant", "blåu")
        messages.append(made)
    send("exchange", *messages)
    consumer = simple("exchange")
    for each in received(consumer, 10):
        number = int(each.body.decode().split()[1])
        assert each.tag == ("odd" if number % 2 else "even"), each.tag
        assert list(each.keys) == [f"key{number}"], each.keys
        assert each.properties == {"tenant": "blåu"}, each.properties
        assert each.delivery_attempt == 1
    consumer.shutdown()


def ordered() -> None:
    messages = []
    for number in range(10):
        for group in ("a", "b"):
            made = message("ordered", f"{group} {number}")
            made.message_group = group
            messages.append(made)
    send("ordered", *messages)
    came: queue.Queue[str] = queue.Queue()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            came.put(message.body.decode())
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration(), "ordered", Listener(), {"ordered": FilterExpression()})
    consumer.startup()
    found = [came.get(timeout=DEADLINE) for _ in range(20)]
    for group in ("a", "b"):
        of_group = [each for each in found if each.startswith(group)]
        assert of_group == [f"{group} {number}" for number in range(10)], of_group
    consumer.shutdown()


def delayed() -> None:
    made = message("delayed", "later")
    begun = time.time()
    made.delivery_timestamp = int(begun) + 3
    send("delayed", made)
    consumer = simple("delayed")
    assert bodies(received(consumer, 1)) == ["later"]
    assert time.time() >= int(begun) + 3
    consumer.shutdown()


def recall() -> None:
    """One of two that are due at the same time."""
    client = producer("recall")
    due = int(time.time()) + 5
    handles = []
    for body in ("recalled", "delivered"):
        made = message("recall", body)
        made.delivery_timestamp = due
        handles.append(client.send(made).recall_handle)
    client.recall_message("recall", handles[0])
    only(simple("recall"), "delivered")
    client.shutdown()


def transactions() -> None:
    client = producer("transactions")
    for body in ("yes", "no"):
        transaction = client.begin_transaction()
        client.send(message("transactions", body), transaction)
        if body == "yes":
            transaction.commit()
        else:
            transaction.rollback()
    only(simple("transactions"), "yes")
    client.shutdown()


def crash() -> None:
    client = producer("takeover")
    client.send(message("takeover", "left behind"), client.begin_transaction())
    os._exit(7)


def takeover() -> None:
    client = producer("takeover")
    only(simple("takeover"), "left behind")
    client.shutdown()


def filters() -> None:
    messages = []
    for tag in ("red", "green", "blue"):
        made = message("filters", tag, tag)
        made.add_property("length", str(len(tag)))
        messages.append(made)
    send("filters", *messages)
    only(simple("filters", FilterExpression("red || blue"), "tags"), "red", "blue")
    only(simple("filters", FilterExpression("length > 3", FilterType.SQL), "sql"), "green", "blue")


def pushed(topic: str, group: str, expression: FilterExpression, *wanted: str) -> None:
    """A push consumer gets these, in which order ever, and no others before them."""
    came: queue.Queue[str] = queue.Queue()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            came.put(message.body.decode())
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration(), group, Listener(), {topic: expression})
    consumer.startup()
    found = sorted(came.get(timeout=DEADLINE) for _ in wanted)
    assert found == sorted(wanted), found
    consumer.shutdown()
    assert came.empty()


def selective() -> None:
    """In one queue, the last message is one that both consumers take."""
    messages = []
    for number, tag in enumerate(("red", "green", "blue", "red", "green", "blue", "red")):
        made = message("selective", f"{tag} {number}", tag)
        made.add_property("number", str(number))
        made.message_group = "one"
        messages.append(made)
    send("selective", *messages)
    pushed(
        "selective", "by-tag", FilterExpression("red || blue"), "red 0", "blue 2", "red 3", "blue 5", "red 6"
    )
    sql = FilterExpression("number BETWEEN 3 AND 4 OR TAGS = 'red'", FilterType.SQL)
    pushed("selective", "by-sql", sql, "red 0", "red 3", "green 4", "red 6")


def refused() -> None:
    """For a login that may not send: it prints why."""
    try:
        send("refused", message("refused", "body"))
    except Exception as error:  # noqa: BLE001 - the client has many kinds
        print(" ".join(str(error).split()), flush=True)
    else:
        raise AssertionError("the message was sent")


def retries() -> None:
    send("retries", message("retries", "bad"), message("retries", "good"))
    came: queue.Queue[tuple[str, int]] = queue.Queue()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            body = message.body.decode()
            came.put((body, message.delivery_attempt))
            return ConsumeResult.SUCCESS if body == "good" else ConsumeResult.FAILURE

    consumer = PushConsumer(configuration(), "retries", Listener(), {"retries": FilterExpression()})
    consumer.startup()
    found = sorted(came.get(timeout=DEADLINE) for _ in range(3))
    assert found == [("bad", 1), ("bad", 2), ("good", 1)], found
    only(simple("%DLQ%retries", group="undertakers"), "bad")
    consumer.shutdown()


def redelivery() -> None:
    send("redelivery", message("redelivery", "again"))
    consumer = simple("redelivery")
    late = time.monotonic() + DEADLINE
    attempts: list[int] = []
    while len(attempts) < 2:
        assert time.monotonic() < late, attempts
        for each in consumer.receive(32, 1):
            attempts.append(each.delivery_attempt)
            if len(attempts) == 2:
                consumer.ack(each)
    assert attempts == [1, 2], attempts
    consumer.shutdown()


def killed() -> None:
    """Sends, also half messages, and consumes while the test kills the broker, until it closes the input.

    The first word of a half message is what becomes of it, whether the producer says so or is asked.
    """
    reading = threading.Thread(target=sys.stdin.read, daemon=True)
    reading.start()
    client = producer("killed", Deciding())
    accepted: list[str] = []
    send_one(client, 0, accepted)
    came: set[str] = set()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            came.add(message.body.decode())
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration(), "killed", Listener(), {"killed": FilterExpression()})
    consumer.startup()
    number = after = 0
    while after < 20:
        number += 1
        after += not reading.is_alive()
        if send_one(client, number, accepted) and len(accepted) % 20 == 0:
            print("sending", flush=True)
        time.sleep(0.01)
    # The client does not open its Telemetry stream again for minutes: another producer of the topic is asked.
    producer("killed", Deciding())
    late = time.monotonic() + DEADLINE
    wanted = {each for each in accepted if not each.startswith("rollback")}
    while missing := wanted - came:
        assert time.monotonic() < late, missing
        time.sleep(0.05)
    assert not [each for each in came if each.startswith("rollback")]
    print(f"accepted {len(accepted)}", flush=True)


class Deciding(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Message) -> TransactionResolution:
        is_wanted = message.body.startswith(b"commit")
        return TransactionResolution.COMMIT if is_wanted else TransactionResolution.ROLLBACK


def send_one(client: Producer, number: int, accepted: list[str]) -> bool:
    """Whether it was accepted. If not, it may be there."""
    kind = ("plain", "commit", "rollback", "commit unsaid")[number % 4]
    body = f"{kind} {number}"
    transaction = None if kind == "plain" else client.begin_transaction()
    try:
        client.send(message("killed", body), transaction)
    except Exception:  # noqa: BLE001 - the client has many kinds of it while the broker is away
        time.sleep(0.1)
        return False
    accepted.append(body)
    if transaction is not None and kind != "commit unsaid":
        with suppress(Exception):  # if the broker is away, a producer is asked
            transaction.commit() if kind == "commit" else transaction.rollback()
    return True


def inbox() -> None:
    consumer = simple("inbox")
    found = {each.body.decode(): each for each in received(consumer, 3)}
    assert found.keys() == {"grüße von AMQP", "grüße von Kafka", "ohne alles"}, found
    tagged = found["grüße von Kafka"]
    assert (tagged.tag, list(tagged.keys), tagged.properties) == ("red", ["from.kafka"], {"tenant": "röt"})
    of_amqp = found["grüße von AMQP"]
    assert (list(of_amqp.keys), of_amqp.properties) == (["from.amqp"], {"tenant": "blåu"})
    consumer.shutdown()


def priorities() -> None:
    messages = []
    for priority in (1, 3, 2, 0, 3, 9):
        made = message("priorities", f"priority {priority}")
        made.priority = priority
        messages.append(made)
    send("priorities", *messages)
    consumer = simple("priorities")
    found = [each.priority for each in received(consumer, 6)]
    assert found == [3, 3, 9, 2, 1, 0], found  # there are four queues: 9 is as high as 3
    consumer.shutdown()


def run(step: str) -> None:
    globals()[step]()
    # In one piece: print writes the end of a line by itself, and steps in other threads print, too.
    sys.stdout.write(f"done {step}\n")
    sys.stdout.flush()


# The client fails if an answer comes before it waits for it, which takes long among busy threads.
sys.setswitchinterval(0.0005)
with ThreadPoolExecutor() as threads:
    for ended in [threads.submit(run, step) for step in STEPS]:
        ended.result()
os._exit(0)  # threads of the client go on for a while
