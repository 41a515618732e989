"""What a load looks up in logs for epochs: in steps, and no more than there is."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.broker.transactions.open_transactions import PRODUCERS_PER_STEP, newest_epochs


class Producers:
    """Of one log: the epoch of each, and how many were looked up."""

    def __init__(self, epochs):
        self.epochs = epochs
        self.looked_up = 0

    def __len__(self):
        return len(self.epochs)

    def __iter__(self):
        return iter([SimpleNamespace(producer_id=one) for one in self.epochs])

    def get(self, producer_id):
        self.looked_up += 1
        epoch = self.epochs.get(producer_id)
        return None if epoch is None else SimpleNamespace(producer_id=producer_id, epoch=epoch)


def result_of(logs, producer_ids):
    """What is found, and in how many steps."""
    partitions = [SimpleNamespace(log=SimpleNamespace(producers=one)) for one in logs]
    topics = {"t": SimpleNamespace(partitions=[None, *partitions])}
    steps = newest_epochs(SimpleNamespace(topics=topics), producer_ids)
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_the_newest_epoch_of_all_logs_counts_and_other_producers_do_not():
    logs = [Producers({1: 3, 2: 0, 9: 7}), Producers({1: 5}), Producers({1: 4, 3: 1})]
    assert result_of(logs, {1, 2, 4}) == ({1: 5, 2: 0}, 1)


def test_of_many_ids_and_logs_with_few_producers_only_these_are_looked_up():
    logs = [Producers({number: 1}) for number in range(1_000)]
    found, _ = result_of(logs, set(range(100_000)))
    assert len(found) == 1_000
    assert sum(one.looked_up for one in logs) == 1_000


def test_of_a_log_with_many_producers_only_the_ids_are_looked_up():
    log = Producers(dict.fromkeys(range(100_000), 2))
    assert result_of([log], {7, 8, 200_000}) == ({7: 2, 8: 2}, 1)
    assert log.looked_up == 3


def test_a_step_ends_after_so_many():
    wanted = range(4 * PRODUCERS_PER_STEP)
    found, steps = result_of([Producers(dict.fromkeys(wanted, 2))], set(wanted))
    assert len(found) == len(wanted)
    assert steps in (4, 5)
