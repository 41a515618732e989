"""The machinery under the broker's work: deadlines, turns, group syncs, workers, pending answers, counters."""
