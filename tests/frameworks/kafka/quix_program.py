"""A Quix Streams application: counts words, exactly once, and buries what it cannot.

    python quix_program.py KAFKA GROUP STATE

It runs in an environment of its own: see `make frameworks`.
"""

import sys

from quixstreams import Application, State

kafka, group, directory = sys.argv[1:]

app = Application(
    broker_address=kafka,
    consumer_group=group,
    state_dir=directory,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.2,
    consumer_extra_config={"session.timeout.ms": 3000, "heartbeat.interval.ms": 500},
)


def count(word: dict[str, str], state: State) -> dict[str, object]:
    number = state.get("count", 0) + 1
    state.set("count", number)
    return {"text": word["text"], "count": number}


words = app.topic(f"{group}-words", value_deserializer="json")
counted = app.topic(f"{group}-counted", value_serializer="json")
dead = app.topic(f"{group}-dead", value_serializer="json")

frame = app.dataframe(words)
frame.filter(lambda word: word["text"] == "bad").to_topic(dead, key=lambda word: word["text"])
frame[frame["text"] != "bad"].group_by("text").apply(count, stateful=True).to_topic(counted)
app.run()
