"""Consumer groups: pure machines that decide, and the shell that keeps what they decide in `__consumer_offsets`."""
