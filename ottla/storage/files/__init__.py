"""The interface to the operating system: files, locks, clocks, and the meaning of their errors."""
