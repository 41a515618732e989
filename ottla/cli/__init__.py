"""The `ottla` command: one file per command group."""
