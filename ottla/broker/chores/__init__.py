"""Background work: retention, cleaning, checkpoints, the check of the wall clock."""
