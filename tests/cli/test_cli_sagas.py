"""The saga commands."""

import json

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside, one_sentence


def test_list_and_show() -> None:
    with ThreadBroker() as broker:
        listed = inside("saga", "list", "--admin", broker.admin)
        assert (listed.returncode, listed.stdout) == (0, "") and "there are no sagas" in listed.stderr
        state = {"id": "order-7", "version": 3, "status": "compensating", "step": "pay", "error": "no money"}
        state |= {"started_ms": 1000, "changed_ms": 4000, "input": {"item": "tea"}}
        with Client(broker.kafka) as client:
            client.create_topic("saga.order.state", partitions=1, settings={"cleanup.policy": "compact"})
            with client.producer("saga.order.state") as producer:
                producer.send(json.dumps(state).encode(), b"order-7")
        kinds = inside("saga", "list", "--admin", broker.admin)
        assert "order" in kinds.stdout and "compensating" in kinds.stdout
        [row] = json.loads(inside("saga", "list", "order", "--json", "--admin", broker.admin).stdout)
        assert (row["id"], row["status"], row["error"]) == ("order-7", "compensating", "no money")
        table = inside("saga", "list", "order", "--status", "compensating", "--admin", broker.admin)
        assert "order-7" in table.stdout and "no money" in table.stdout
        shown = json.loads(inside("saga", "show", "order", "order-7", "--admin", broker.admin).stdout)
        assert shown["input"] == {"item": "tea"}
        missing = inside("saga", "show", "order", "order-8", "--admin", broker.admin)
        assert "has no 'order-8'" in one_sentence(missing, 1)
        wrong = inside("saga", "list", "--status", "running", "--admin", broker.admin)
        assert "give the name of a saga, too" in wrong.stderr and wrong.returncode == 2
