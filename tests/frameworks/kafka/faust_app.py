"""A Faust application: counts words in a table, tells what it has counted, and buries what it cannot.

FAUST_NAME=counter FAUST_BROKER=127.0.0.1:9092 FAUST_DATA=dir faust -A tests.frameworks.kafka.faust_app worker
"""

import os
from typing import Any

import faust

NAME = os.environ["FAUST_NAME"]

app = faust.App(
    NAME,
    broker=f"kafka://{os.environ['FAUST_BROKER']}",
    datadir=os.environ["FAUST_DATA"],
    topic_partitions=2,
    web_enabled=False,
    broker_commit_interval=0.2,
    broker_session_timeout=3.0,
    broker_heartbeat_interval=0.5,
)


class Word(faust.Record):
    text: str


words = app.topic(f"{NAME}-words", value_type=Word, partitions=2)
counted = app.topic(f"{NAME}-counted", partitions=2)
dead = app.topic(f"{NAME}-dead", partitions=2)
counts = app.Table(f"{NAME}-counts", default=int, partitions=2)


@app.agent(words)
async def count(stream: Any) -> None:
    async for word in stream.group_by(Word.text):
        if word.text == "bad":
            await dead.send(value={"text": word.text})
            continue
        counts[word.text] += 1
        await counted.send(key=word.text, value={"text": word.text, "count": counts[word.text]})
