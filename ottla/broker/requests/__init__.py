"""The gate that every request passes: its version, its handler, its answer or its refusal."""
