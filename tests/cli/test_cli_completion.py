"""Completion in bash: a name with special characters is one word, and no command."""

import shutil
import subprocess
from collections.abc import Iterator

import pika
import pytest

from posthouse.cli.bash_completion import quoted
from tests.cli.programs import Serving, posthouse

NAMES = [
    "plain-1.x_y",
    "a b",
    "$(touch owned)",
    "x;y&z|w",
    "it's",
    'say "hi"',
    "`id`",
    r"back\slash",
    "#1",
    "~",
    "é ü",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize("opened", ["", "'", '"'], ids=["bare", "single", "double"])
@pytest.mark.parametrize("name", NAMES)
def test_bash_reads_the_name_as_one_word(name: str, opened: str) -> None:
    word = f"{opened}{quoted(name, opened)}{opened}"
    done = subprocess.run(["bash", "-c", f"printf '<%s>' {word}"], capture_output=True, text=True, check=True)
    assert done.stdout == f"<{name}>"


def test_names_without_special_characters_stay_as_they_are() -> None:
    assert quoted("orders-2.eu_west:a/b,c=d@e+f%g") == "orders-2.eu_west:a/b,c=d@e+f%g"


@pytest.fixture
def spaced(serving: Serving, topic: str) -> Iterator[str]:
    host, port = serving.amqp.split(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    name = f"{topic} $(x)"
    channel.queue_declare(name)
    yield name
    channel.queue_delete(name)
    connection.close()


def test_a_queue_is_offered_quoted(serving: Serving, topic: str, spaced: str) -> None:
    def completed(word: str) -> str:
        words = "\n".join(["posthouse", "queue", "describe", word])
        asked = {"_POSTHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
        for _ in range(20):
            if found := posthouse(POSTHOUSE_ADMIN_ADDRESS=serving.admin, **asked).stdout.strip("\n"):
                return found
        return "nothing"  # the broker had not answered in the time that completion waits

    assert completed(topic) == rf"{topic}\ \$\(x\)"
    assert completed(rf"{topic}\ \$") == rf"{topic}\ \$\(x\)"
    assert completed(f"'{topic} ") == spaced
    assert completed(f'"{topic} ') == rf"{topic} \$(x)"
