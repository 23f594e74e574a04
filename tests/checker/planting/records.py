"""Records that get lost, double, strange, or half."""

from tests.checker.history import End, FinalRead, Outcome, Poll, Send
from tests.checker.log import Fate, Transaction
from tests.checker.planting.scene import FAR, Scene, plants
from tests.checker.report import Kind


@plants(Kind.LOST_WRITE, Kind.DIRTY_VISIBILITY)
def hole(scene: Scene) -> None:
    view = scene.any_view()
    scene.forget(view, {scene.any(scene.acknowledged(view)).value})


@plants(
    Kind.LOST_WRITE,
    Kind.DIRTY_VISIBILITY,
    Kind.TORN_TRANSACTION,
    Kind.HIGH_WATERMARK,
    Kind.STABLE_OFFSET,
)
def cut_tail(scene: Scene) -> None:
    view = scene.any(view for view in scene.log.views.values() if view.everything or not view.stalled)
    first = scene.any(scene.acknowledged(view)).offset
    assert first is not None
    for read in scene.final_reads(view):
        read.records = [record for record in read.records if record[0] < first]
        read.end = first


@plants(Kind.LOST_WRITE, Kind.DIRTY_VISIBILITY)
def vanished_transaction(scene: Scene) -> None:
    transaction = scene.any(each for each in scene.log.transactions.values() if _all_there(scene, each))
    for send in transaction.sends:
        scene.forget(scene.log.views[send.partition], {send.value}, (True,))


def _all_there(scene: Scene, transaction: Transaction) -> bool:
    """Committed, at least two records, all of them visible and none the last of its partition."""
    if transaction.fate is not Fate.COMMITTED or len(transaction.sends) < 2:
        return False
    for send in transaction.sends:
        read = scene.log.views[send.partition].committed
        if read is None or send.offset is None or send.value not in read.values or send.offset >= read.last:
            return False
    return True


@plants(Kind.UNSEEN, Kind.LOST_WRITE, Kind.DIRTY_VISIBILITY, Kind.TORN_TRANSACTION)
def reader_stuck(scene: Scene) -> None:
    view = scene.any_view()
    first = scene.any(scene.acknowledged(view)).offset
    assert first is not None
    for read in scene.final_reads(view):
        read.records = [record for record in read.records if record[0] < first]


@plants(
    Kind.UNSEEN,
    Kind.LOST_WRITE,
    Kind.DIRTY_VISIBILITY,
    Kind.TORN_TRANSACTION,
    Kind.STABLE_OFFSET,
)
def held_up_by_nobody(scene: Scene) -> None:
    """The last stable offset stays where no open transaction begins."""
    view = scene.any(view for view in scene.log.views.values() if view.everything and view.committed)
    first = scene.any(scene.acknowledged(view)).offset
    assert first is not None
    for read in scene.final_reads(view):
        if read.committed_only:
            read.records = [record for record in read.records if record[0] < first]
            read.end = first


@plants(Kind.DUPLICATE)
def written_twice(scene: Scene) -> None:
    view = scene.any_view()
    value = scene.any(scene.acknowledged(view)).value
    scene.any(scene.final_reads(view)).records.append((FAR, value))


@plants(Kind.INCONSISTENT_OFFSET)
def two_values_at_an_offset(scene: Scene) -> None:
    view = scene.any_view()
    send = scene.any(scene.acknowledged(view))
    poll, index = scene.any(
        (poll, index)
        for poll in scene.all(Poll)
        for index, (partition, _, value) in enumerate(poll.records)
        if partition == view.partition and value != send.value
    )
    partition, offset, _ = poll.records[index]
    poll.records[index] = (partition, offset, send.value)


@plants(Kind.INCONSISTENT_OFFSET, Kind.DIRTY_VISIBILITY, Kind.REAL_TIME_ORDER)
def offset_used_again(scene: Scene) -> None:
    """One consumer saw a record there that nobody else ever did."""
    view, send = scene.any(
        (view, send)
        for view in scene.log.views.values()
        for send in view.sends
        if send.outcome is Outcome.UNKNOWN and send.transaction is None and send.value not in view.offsets
    )
    poll, index = scene.any(
        (poll, index)
        for poll in scene.all(Poll)
        for index, (partition, offset, _) in enumerate(poll.records)
        if partition == view.partition and all(offset in read.at for read in view.final_reads)
    )
    partition, offset, _ = poll.records[index]
    poll.records[index] = (partition, offset, send.value)


@plants(Kind.INCONSISTENT_OFFSET, Kind.REAL_TIME_ORDER, Kind.NON_MONOTONIC_SEND)
def acknowledged_elsewhere(scene: Scene) -> None:
    send = scene.any(scene.acknowledged(scene.any_view()))
    send.offset = FAR


@plants(Kind.PHANTOM)
def never_sent(scene: Scene) -> None:
    scene.any(scene.all(FinalRead)).records.append((FAR, FAR))


@plants(Kind.PHANTOM)
def wrong_partition(scene: Scene) -> None:
    view = scene.any_view()
    send = scene.any(scene.acknowledged(view))
    other = scene.any(read for read in scene.all(FinalRead) if read.partition != view.partition)
    other.records.append((FAR, send.value))


@plants(Kind.DIRTY_VISIBILITY, Kind.LOST_WRITE, Kind.UNSEEN, Kind.TORN_TRANSACTION)
def seen_then_gone(scene: Scene) -> None:
    view = scene.any_view()
    seen = view.polled_committed if view.everything is None else view.polled
    values = {value for value, offset in seen.items() if offset >= view.start}
    scene.forget(view, {scene.any(sorted(values))})


@plants(Kind.DIRTY_VISIBILITY)
def seen_then_gone_without_an_answer(scene: Scene) -> None:
    """The producer was never told, so that only the poll knows of the record."""
    view = scene.any_view()
    seen = view.polled_committed if view.everything is None else view.polled
    unsure = {send.value for send in view.sends if send.outcome is Outcome.UNKNOWN}
    values = {value for value, offset in seen.items() if offset >= view.start and value in unsure}
    scene.forget(view, {scene.any(sorted(values))})


@plants(Kind.ABORTED_READ)
def failed_send_is_read(scene: Scene) -> None:
    send = scene.any(scene.acknowledged(scene.any_view()))
    send.outcome, send.offset = Outcome.FAILED, None


def _seen_end(scene: Scene) -> End:
    """The commit of a transaction that a committed-only poll has seen."""
    return scene.any(
        end
        for transaction in scene.log.transactions.values()
        if len(transaction.ends) == 1
        for end in transaction.ends
        if end.commit and end.outcome is not Outcome.FAILED
        if any(_first_seen(scene, send) is not None for send in transaction.sends)
    )


def _first_seen(scene: Scene, send: Send) -> int | None:
    if send.value not in scene.log.views[send.partition].polled_committed:
        return None
    return min(
        poll.completed
        for poll in scene.all(Poll)
        if poll.committed_only and any(value == send.value for _, _, value in poll.records)
    )


@plants(Kind.ABORTED_READ, Kind.COMMITTED_OFFSET)
def aborted_transaction_is_read(scene: Scene) -> None:
    _seen_end(scene).commit = False


@plants(Kind.ABORTED_READ, Kind.POLL_SKIP)
def aborted_record_is_there_in_the_end(scene: Scene) -> None:
    read, send = scene.any(
        (view.committed, send)
        for view in scene.log.views.values()
        if view.committed is not None
        for send in view.sends
        if send.offset is not None and view.start <= send.offset < view.committed.end
        if scene.log.fate(send) is Fate.NOT_COMMITTED
    )
    assert send.offset is not None
    read.records.append((send.offset, send.value))
    read.records.sort()


@plants(Kind.ABORTED_READ, Kind.COMMITTED_OFFSET)
def open_transaction_is_read(scene: Scene) -> None:
    scene.history.remove(_seen_end(scene))


@plants(Kind.PRECOMMITTED_READ, Kind.COMMITTED_OFFSET)
def read_before_the_commit(scene: Scene) -> None:
    end = _seen_end(scene)
    seen = [_first_seen(scene, send) for send in scene.log.transactions[end.transaction].sends]
    end.invoked = 1 + min(time for time in seen if time is not None)
    end.completed = max(end.completed, end.invoked + 1)


@plants(Kind.TORN_TRANSACTION, Kind.DIRTY_VISIBILITY)
def half_a_transaction(scene: Scene) -> None:
    transaction = scene.any(each for each in scene.log.transactions.values() if _all_there(scene, each))
    send = scene.any(transaction.sends)
    scene.forget(scene.log.views[send.partition], {send.value}, (True,))


@plants(Kind.TORN_TRANSACTION, Kind.DIRTY_VISIBILITY)
def one_partition_of_a_transaction(scene: Scene) -> None:
    transaction = scene.any(
        each
        for each in scene.log.transactions.values()
        if _all_there(scene, each) and len({send.partition for send in each.sends}) > 1
    )
    partition = transaction.sends[0].partition
    gone = {send.value for send in transaction.sends if send.partition == partition}
    scene.forget(scene.log.views[partition], gone, (True,))
