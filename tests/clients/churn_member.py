"""A consumer in a process of its own, so that it can be killed or stopped at any point.

It notes every record before it commits it, one line each: D partition offset. After a commit: C partition
next-offset. Ends politely on SIGTERM.
"""

import json
import os
import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException


def main(topic: str, log: str, config: dict[str, Any]) -> None:
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    consumer = Consumer(config)
    consumer.subscribe([topic])
    is_behind = False
    while not stop:
        messages = [message for message in consumer.consume(20, 0.1) if message.error() is None]
        for message in messages:
            os.write(file, f"D {message.partition()} {message.offset()}\n".encode())
        if not messages and not is_behind:
            continue
        try:
            for place in consumer.commit(asynchronous=False) or ():
                if place.error is None and place.offset >= 0:
                    os.write(file, f"C {place.partition} {place.offset}\n".encode())
            is_behind = False
        except KafkaException as error:
            # Either whoever has the partition now reads those records again, or it stays ours in a rebalance
            # that is under way: then nobody does, and it must be committed later.
            is_behind = error.args[0].code() != KafkaError._NO_OFFSET
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
