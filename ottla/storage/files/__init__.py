"""The door to the operating system: files, locks, clocks, and what their errors mean."""
