"""The end of a step of a scrape: a family without figures, at which others run before the next ones are made."""

from __future__ import annotations

from typing import Final

from prometheus_client.core import Metric

PAUSE: Final = Metric("pause", "", "unknown")
"""Before a look at every log or every group, a millisecond where there are thousands, and after an import."""
