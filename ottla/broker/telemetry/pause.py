"""The end of a step of a scrape: a family without figures, after which other requests run before the next step."""

from __future__ import annotations

from typing import Final

from prometheus_client.core import Metric

PAUSE: Final = Metric("pause", "", "unknown")
"""Used before each loop over all logs or groups, which takes a millisecond for thousands, and after an import."""
