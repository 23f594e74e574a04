"""A small synchronous client for the Kafka protocol, on our own codec.

    with Client("127.0.0.1:9092") as client:
        with client.producer("greetings") as producer:
            producer.send(b"hello")
        for message in client.messages("greetings"):
            print(message.value)

Not for many threads at once: one client belongs to one thread.
"""

from posthouse.client.client import Client
from posthouse.client.errors import ClientError
from posthouse.client.positions import Start
from posthouse.client.reading import Message

__all__ = ["Client", "ClientError", "Message", "Start"]
