"""`python -m bench.rocketmq.grpc_load send|receive ENDPOINTS TOPIC SIZE SECONDS`: one stock Python client of
RocketMQ's gRPC protocol, which waits for each answer. Prints what it measured as JSON.
"""

import json
import sys
import time
from typing import Final

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer
from rocketmq.v5.exception.client_exception import InternalErrorException

_WARM_UP: Final = 1.0
_AT_ONCE: Final = 32
_INVISIBLE_SECONDS: Final = 60


def send(endpoints: str, topic: str, size: int, seconds: float) -> dict[str, float]:
    producer = Producer(ClientConfiguration(endpoints, Credentials("", "")), (topic,))
    producer.startup()
    body = b"x" * size
    begin = time.perf_counter() + _WARM_UP
    times: list[float] = []
    sent = 0
    while (began := time.perf_counter()) < begin + seconds:
        message = Message()
        message.topic, message.body = topic, body
        producer.send(message)
        sent += 1
        if began >= begin:
            times.append(time.perf_counter() - began)
    producer.shutdown()
    times.sort()
    return {"rate": len(times) / seconds, "p50_ms": times[len(times) // 2] * 1000, "sent": sent}


def receive(endpoints: str, topic: str, _: int, seconds: float) -> dict[str, float]:
    """Messages that are there are received, 32 at a time, and acknowledged one by one."""
    configuration = ClientConfiguration(endpoints, Credentials("", ""))
    consumer = SimpleConsumer(configuration, topic, {topic: FilterExpression()})
    consumer.startup()
    count, began = 0, 0.0
    # Time begins with the first message: upstream answers with nothing until it has assigned queues.
    while not began or time.perf_counter() < began + seconds:
        for message in _received(consumer, is_first=not began):
            began = began or time.perf_counter()
            consumer.ack(message)
            count += 1
    took = time.perf_counter() - began
    consumer.shutdown()
    return {"rate": count / took, "sent": count}


def _received(consumer: SimpleConsumer, *, is_first: bool) -> list[Message]:
    try:
        found: list[Message] = consumer.receive(_AT_ONCE, _INVISIBLE_SECONDS)
    except InternalErrorException:
        if not is_first:
            raise
        return []  # upstream fails while it has no settings of the client, which are on their way
    return found


def main() -> None:
    what, endpoints, topic, size, seconds = sys.argv[1:]
    load = {"send": send, "receive": receive}[what]
    print(json.dumps(load(endpoints, topic, int(size), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
