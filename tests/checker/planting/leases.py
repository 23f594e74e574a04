"""Leases that are shared or forgotten, lanes in disorder, and dead letters that are none."""

from dataclasses import replace

from tests.checker.history import Bury, ChangeLease, DeadLetters, Drained, Lease, Outcome, Publish
from tests.checker.planting.scene import FAR, Scene, plants
from tests.checker.report import Kind

QUEUE, PARTITION = "far", ("far", 0)
_LONG = 1_000_000


def _lease(scene: Scene, process: int, value: int, after: int = 0, **fields: object) -> Lease:
    """Of a group of its own, after everything else."""
    at = scene.end + after
    lease = Lease(process, at, at + 1, QUEUE, value, PARTITION, value, "lane", 1, _LONG)
    return replace(lease, **fields)  # type: ignore[arg-type]


def _publish(scene: Scene, *values: int) -> None:
    scene.history += [Publish(FAR, scene.end, scene.end, QUEUE, value, Outcome.OK) for value in values]


@plants(Kind.SHARED_LEASE)
def leased_to_two(scene: Scene) -> None:
    _publish(scene, FAR)
    scene.history += [_lease(scene, FAR, FAR), _lease(scene, FAR + 1, FAR, 5, attempt=2)]


@plants(Kind.SHARED_LEASE)
def leased_though_it_was_prolonged(scene: Scene) -> None:
    _publish(scene, FAR)
    at = scene.end + 5
    scene.history += [
        _lease(scene, FAR, FAR, lasts=10),
        ChangeLease(FAR, at, at + 1, QUEUE, FAR, _LONG, Outcome.OK),
        _lease(scene, FAR + 1, FAR, 50, attempt=2),
    ]


@plants(Kind.LANE_ORDER)
def overtaken(scene: Scene) -> None:
    _publish(scene, FAR, FAR + 1)
    scene.history += [
        _lease(scene, FAR, FAR, lasts=3),
        _lease(scene, FAR + 1, FAR + 1, 5),
        _lease(scene, FAR, FAR, 10, attempt=2),
    ]


@plants(Kind.LANE_ORDER)
def overtaken_before_it_came_at_all(scene: Scene) -> None:
    _publish(scene, FAR, FAR + 1)
    scene.history += [_lease(scene, FAR + 1, FAR + 1), _lease(scene, FAR, FAR, 5)]


@plants(Kind.LANE_ORDER)
def overtaken_though_somebody_asked_to_settle_it(scene: Scene) -> None:
    _publish(scene, FAR, FAR + 1)
    at = scene.end + 3
    scene.history += [
        _lease(scene, FAR, FAR),
        Bury(FAR, at, at + 1, QUEUE, FAR, Outcome.UNKNOWN),
        _lease(scene, FAR + 1, FAR + 1, 5),
        _lease(scene, FAR, FAR, 10, attempt=2),
    ]


@plants(Kind.TOO_MANY_DELIVERIES)
def delivered_too_often(scene: Scene) -> None:
    _publish(scene, FAR)
    scene.history += [_lease(scene, FAR, FAR, attempt=4), DeadLetters(QUEUE, 3, [])]


@plants(Kind.EARLY_DEATH)
def dead_without_a_reason(scene: Scene) -> None:
    _publish(scene, FAR)
    scene.history += [_lease(scene, FAR, FAR, attempt=2), DeadLetters(QUEUE, 3, [FAR])]


@plants(Kind.LOST_DEAD_LETTER, Kind.LANE_ORDER)
def dead_letter_forgotten(scene: Scene) -> None:
    dead = scene.any(each for each in scene.all(DeadLetters))
    buried = scene.any(
        each
        for each in scene.all(Bury)
        if each.outcome is Outcome.OK and each.queue == dead.queue and each.value in dead.values
    )
    dead.values.remove(buried.value)


@plants(Kind.LOST_MESSAGE, Kind.LANE_ORDER)
def delivered_too_often_and_gone(scene: Scene) -> None:
    dead = scene.any(each for each in scene.all(DeadLetters))
    value = scene.any(value for value in dead.values if not scene.queues.acks.get((dead.queue, value)))
    if scene.queues.publishes[dead.queue, value].outcome is Outcome.OK:
        dead.values.remove(value)
    else:
        scene.any(())


@plants(Kind.PHANTOM_MESSAGE)
def dead_letter_from_nowhere(scene: Scene) -> None:
    _publish(scene, FAR)
    at = scene.end + 3
    scene.history += [
        Bury(FAR, at, at, QUEUE, FAR + 1, Outcome.UNKNOWN),
        DeadLetters(QUEUE, 3, [FAR + 1]),
    ]


@plants(Kind.ACK_CAME_BACK)
def buried_and_left(scene: Scene) -> None:
    buried = scene.any(each for each in scene.all(Bury) if each.outcome is Outcome.OK)
    scene.any(each for each in scene.all(Drained) if each.queue == buried.queue).values.append(buried.value)
