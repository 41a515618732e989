"""What the broker's work runs on: deadlines, turns, group syncs, workers, pending answers, counters."""
