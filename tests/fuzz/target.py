"""What is fuzzed: a function that takes any bytes, and valid ones to begin with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`run` lets out nothing but what is wrong: it catches the errors that its decoder may raise."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    """Encodings of real values: what the corpus is made of."""
    longest: int = 4096
    dictionary: tuple[bytes, ...] = ()
    """What a mutation may put in: magic numbers and the like."""


def all_targets() -> dict[str, Target]:
    from tests.fuzz.targets import amqp, grpc, kafka, logins, records, rocketmq, rocketmq_grpc, stored

    found = [
        *kafka.TARGETS,
        *amqp.TARGETS,
        *rocketmq.TARGETS,
        *rocketmq_grpc.TARGETS,
        *grpc.TARGETS,
        *records.TARGETS,
        *stored.TARGETS,
        *logins.TARGETS,
    ]
    return {target.name: target for target in found}
