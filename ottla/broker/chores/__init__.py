"""Background work: retention, cleaning, checkpoints, the look at the wall clock."""
