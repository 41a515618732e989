"""What a start does with a log that was not stopped cleanly: nothing past the recovery point is trusted."""
