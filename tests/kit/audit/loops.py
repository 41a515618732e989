"""An event loop in a thread, for clients of asyncio beside clients with threads."""

from __future__ import annotations

import asyncio
import logging
import threading


class LoopThread:
    """Runs a loop until `end`."""

    def __init__(self) -> None:
        for noisy in ("aiokafka", "kafka"):
            logging.getLogger(noisy).setLevel(
                logging.CRITICAL
            )  # they tell each lost connection; that is the point here
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: None)  # clients that were given up complain at their end
        self._thread = threading.Thread(target=self.loop.run_forever, name="clients of asyncio", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Cancel what runs and stop."""
        self.loop.call_soon_threadsafe(self._cancel)
        self._thread.join(30)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_later(0.2, self.loop.stop)
