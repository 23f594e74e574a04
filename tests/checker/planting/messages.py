"""Messages that get lost, come back, come in disorder or from nowhere."""

from collections.abc import Iterator
from itertools import combinations, pairwise

from tests.checker.history import Ack, Deliver, Drained, Outcome, Publish, Subscribe
from tests.checker.planting.scene import FAR, Scene, plants
from tests.checker.report import Kind


def _publish(scene: Scene, queue: str, value: int) -> Publish:
    return scene.queues.publishes[queue, value]


@plants(Kind.LOST_MESSAGE)
def lost_before_the_end(scene: Scene) -> None:
    drained, value = scene.any(
        (drained, value)
        for drained in scene.all(Drained)
        for value in drained.values
        if _publish(scene, drained.queue, value).outcome is Outcome.OK
        if not scene.queues.acks.get((drained.queue, value))
    )
    drained.values.remove(value)


@plants(Kind.LOST_MESSAGE, Kind.LANE_ORDER)
def gone_without_acknowledgement(scene: Scene) -> None:
    left = {(drained.queue, value) for drained in scene.all(Drained) for value in drained.values}
    key = scene.any(
        key
        for key in scene.queues.acks
        if key not in left and scene.queues.publishes[key].outcome is Outcome.OK
        if key[1] not in scene.queues.dead.get(key[0], ())
    )
    for ack in scene.queues.acks[key]:
        scene.history.remove(ack)


def _durable_acks(scene: Scene) -> Iterator[Ack]:
    return (ack for ack in scene.all(Ack) if ack.outcome is Outcome.OK)


@plants(Kind.ACK_CAME_BACK)
def acknowledged_and_left(scene: Scene) -> None:
    ack = scene.any(_durable_acks(scene))
    scene.any(drained for drained in scene.all(Drained) if drained.queue == ack.queue).values.append(
        ack.value
    )


@plants(Kind.ACK_CAME_BACK)
def back_to_the_same_consumer(scene: Scene) -> None:
    ack = scene.any(_durable_acks(scene))
    scene.history.append(Deliver(ack.process, scene.end, ack.queue, ack.value, True))


@plants(Kind.ACK_CAME_BACK)
def back_to_a_new_consumer(scene: Scene) -> None:
    ack = scene.any(_durable_acks(scene))
    scene.history.append(Subscribe(FAR, scene.end, ack.queue))
    scene.history.append(Deliver(FAR, scene.end + 1, ack.queue, ack.value, True))


@plants(Kind.ACK_CAME_BACK)
def back_after_something_newer(scene: Scene) -> None:
    ack = scene.any(_durable_acks(scene))
    scene.history += [
        Publish(FAR, scene.end, scene.end + 1, ack.queue, FAR, Outcome.OK),
        Deliver(FAR, scene.end + 2, ack.queue, FAR, False),
        Ack(FAR, scene.end + 3, scene.end + 3, ack.queue, FAR, Outcome.UNKNOWN),
        Deliver(FAR, scene.end + 4, ack.queue, ack.value, True),
    ]


def _calm(scene: Scene, publish: Publish, until: int) -> bool:
    """No fault from the publish until then."""
    return scene.queues.calm_until(publish) > until


@plants(Kind.QUEUE_ORDER, Kind.ACK_CAME_BACK)
def handed_out_in_disorder(scene: Scene) -> None:
    """With several consumers; that an acknowledgement is then too early may be noticed as well."""
    pairs = []
    for operations in scene.queues.consumers.values():
        first_times = [each for each in operations if isinstance(each, Deliver) and not each.redelivered]
        for one, other in pairwise(first_times):
            earlier, later = (_publish(scene, each.queue, each.value) for each in (one, other))
            in_order = earlier.process == later.process and earlier.invoked < later.invoked
            if in_order and earlier.outcome is Outcome.OK and _calm(scene, earlier, other.at):
                pairs.append((one, other))
    one, other = scene.any(pairs)
    one.value, other.value = other.value, one.value


@plants(Kind.QUEUE_ORDER)
def left_in_disorder(scene: Scene) -> None:
    drained, (one, other) = scene.any(
        (drained, pair)
        for drained in scene.all(Drained)
        if drained.queue not in scene.queues.consumed
        for pair in combinations(range(len(drained.values)), 2)
        if _is_in_order(scene, drained, *pair)
    )
    drained.values[one], drained.values[other] = drained.values[other], drained.values[one]


def _is_in_order(scene: Scene, drained: Drained, one: int, other: int) -> bool:
    earlier, later = (_publish(scene, drained.queue, drained.values[index]) for index in (one, other))
    same = earlier.process == later.process
    return same and earlier.invoked < later.invoked and earlier.outcome is Outcome.OK


@plants(Kind.UNMARKED_REDELIVERY, Kind.QUEUE_ORDER)
def mark_forgotten(scene: Scene) -> None:
    recorded = set(map(id, scene.all(Deliver)))  # others are parts of leases
    again = scene.any(
        later
        for deliveries in scene.queues.deliveries.values()
        for earlier in deliveries
        for later in deliveries
        if later.redelivered and not earlier.redelivered and id(later) in recorded
        if _calm(scene, _publish(scene, later.queue, later.value), max(earlier.at, later.at))
    )
    again.redelivered = False


@plants(Kind.UNMARKED_REDELIVERY)
def left_twice(scene: Scene) -> None:
    drained = scene.any(drained for drained in scene.all(Drained) if drained.values)
    drained.values.append(drained.values[-1])


@plants(Kind.PHANTOM_MESSAGE)
def delivered_from_nowhere(scene: Scene) -> None:
    drained = scene.any(scene.all(Drained))
    scene.history.append(Deliver(FAR, scene.end, drained.queue, FAR, False))


@plants(Kind.PHANTOM_MESSAGE)
def left_by_nobody(scene: Scene) -> None:
    scene.any(scene.all(Drained)).values.append(FAR)


@plants(Kind.REFUSED_MESSAGE)
def refused_and_delivered(scene: Scene) -> None:
    key = scene.any(scene.queues.deliveries)
    scene.queues.publishes[key].outcome = Outcome.FAILED


@plants(Kind.REFUSED_MESSAGE)
def refused_and_left(scene: Scene) -> None:
    drained = scene.any(drained for drained in scene.all(Drained) if drained.values)
    _publish(scene, drained.queue, scene.any(drained.values)).outcome = Outcome.FAILED
