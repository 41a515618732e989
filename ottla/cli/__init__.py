"""The `ottla` command: one file per command group. Nothing imports this package but the command itself."""
