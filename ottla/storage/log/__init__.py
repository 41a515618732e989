"""One partition's log: append and read, retention and sync."""
