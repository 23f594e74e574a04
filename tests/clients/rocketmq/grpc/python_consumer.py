"""A consumer with RocketMQ's client in Python that does what the lines of its input say: `receive` takes one
message for ten minutes, `ack 0` acknowledges the first that was received. It prints an answer to each."""

import sys
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, SimpleConsumer

ADDRESS, TOPIC, GROUP = sys.argv[1:]
DEADLINE = 60.0


def receive(consumer: SimpleConsumer) -> Message:
    late = time.monotonic() + DEADLINE
    while not (found := consumer.receive(1, 600)):
        assert time.monotonic() < late, "no message came"
    [message] = found
    return message


def answer(consumer: SimpleConsumer, held: list[Message], words: list[str]) -> str:
    if words[0] == "receive":
        held.append(receive(consumer))
        return str(held[-1].body.decode())
    try:
        consumer.ack(held[int(words[1])])
    except Exception as error:  # noqa: BLE001 - whatever the client makes of it is the answer
        return f"refused {str(error).splitlines()[0]}"
    return "acknowledged"


configuration = ClientConfiguration(ADDRESS, Credentials("", ""))
consumer = SimpleConsumer(configuration, GROUP, {TOPIC: FilterExpression("*")}, await_duration=2)
consumer.startup()
print("ready", flush=True)
held: list[Message] = []
for line in sys.stdin:
    print(answer(consumer, held, line.split()), flush=True)
consumer.shutdown()
print("ended", flush=True)
