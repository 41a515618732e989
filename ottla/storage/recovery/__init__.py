"""The recovery of logs that were not stopped cleanly: nothing after the recovery point is trusted."""
