"""The gate of every request: its version, its handler, its answer or its refusal."""
