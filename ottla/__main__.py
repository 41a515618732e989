"""`python -m ottla`: the same command as `ottla`."""

from __future__ import annotations

from ottla.cli.main import main

if __name__ == "__main__":
    main()
