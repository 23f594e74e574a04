import json

import pytest

from posthouse.broker.queues.definition import QueueDefinition, decode_definition
from posthouse.model.errors import DataDamaged


def test_fields_that_earlier_brokers_refuse_are_stored_only_where_they_are_set() -> None:
    plain = QueueDefinition(name="mails")
    assert not {"delivery_rate", "delivery_concurrency"} & json.loads(plain.encode()).keys()
    assert decode_definition(plain.encode()) == plain


def test_limits_are_stored() -> None:
    limited = QueueDefinition(name="mails", delivery_rate=0.5, delivery_concurrency=8)
    assert decode_definition(limited.encode()) == limited


def test_a_field_that_is_not_known_is_refused() -> None:
    stored = json.loads(QueueDefinition(name="mails").encode()) | {"colour": "red"}
    with pytest.raises(DataDamaged, match="cannot be read"):
        decode_definition(json.dumps(stored).encode())
