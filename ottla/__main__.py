"""`python -m ottla`: the same command as `ottla`."""

from __future__ import annotations

from ottla.cli.entry import run

if __name__ == "__main__":
    run()
