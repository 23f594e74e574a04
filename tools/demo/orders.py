"""A shop: orders from a real Kafka client, some of them broken, as long as somebody wants them."""

import json
import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

TOPIC = "orders"
PER_SECOND = 200
_PRICES = {"tea": 3.2, "coffee": 4.1, "Cake ": 5.5, "soup": 6.9}
_BROKEN_EVERY = 50


class Shop(threading.Thread):
    """`with Shop(address) as shop:` and `shop.sent` counts."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="shop", daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
        self._closed = threading.Event()
        self.sent = 0

    def run(self) -> None:
        chance = random.Random(4)
        begun = time.monotonic()
        while not self._closed.wait(0.1):
            due = int((time.monotonic() - begun) * PER_SECOND)
            while self.sent < due:
                self._send(chance)
            self._producer.poll(0)

    def _send(self, chance: random.Random) -> None:
        self.sent += 1
        item = chance.choice(list(_PRICES))
        order = {
            "order_id": f"o-{self.sent}",
            "item": item,
            "quantity": chance.randint(1, 5),
            "price": _PRICES[item],
        }
        value = "not an order" if self.sent % _BROKEN_EVERY == 0 else json.dumps(order)
        self._producer.produce(TOPIC, value=value, key=f"customer-{chance.randint(1, 500)}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed.set()
        self.join()
        self._producer.flush(10)
        # Or it would complain when the broker goes.
        del self._producer
