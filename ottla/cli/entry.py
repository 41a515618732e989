"""Where the `ottla` program begins.

Two things have to happen before click is imported, which takes longer than both:

- `ottla ping` in its plain form, as health checks run it every few seconds, is answered by `probe.py` alone. Anything
  that is not understood here, a mistake or `--help`, goes on to click, which knows how to say it.
- Ctrl-C ends the program quietly with status 130 from its first moment on, and `ottla serve` as process 1 of a
  container, where signals without a handler are ignored, can be stopped while it is still being imported.
"""

from __future__ import annotations

import gc
import sys

from ottla.cli import probe

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def run() -> None:
    """Run the command line and end the process with its exit status."""
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["ping"]:
            status = quick_ping(arguments[1:])
            if status is not None:
                raise SystemExit(status)
        elif arguments[:1] == ["serve"]:
            _end_on_sigterm()
            gc.disable()  # what a start makes stays; the server switches the collector on when it is ready
        from ottla.cli.main import main

        main(prog_name="ottla")
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def quick_ping(arguments: list[str]) -> int | None:
    """The exit status of `ottla ping` with these arguments; None for those that are click's to understand."""
    servers, timeout_ms, is_quiet = [probe.parse_address(probe.DEFAULT_SERVER)], probe.DEFAULT_TIMEOUT_MS, False
    rest = iter(arguments)
    for option in rest:
        if option in ("-q", "--quiet"):
            is_quiet = True
            continue
        value = next(rest, "")
        if option in ("-b", "--bootstrap-server"):
            try:
                servers = [probe.parse_address(one) for one in value.split(",")]
            except ValueError:
                return None
        elif option == "--timeout-ms" and value.isascii() and value.isdecimal() and 0 < int(value) < 2**31:
            timeout_ms = int(value)
        else:
            return None
    try:
        told = probe.ping_first(servers, timeout_ms)
    except probe.NoAnswer as error:
        sys.stderr.write(f"ottla: {error}\n")
        return 1
    if not is_quiet:
        sys.stdout.write(answer_line(*told) + "\n")
    return 0


def answer_line(address: str, elapsed_ms: float, apis: int) -> str:
    """What `ottla ping` says of a broker that answers."""
    return f"{address} answers after {elapsed_ms:.1f} ms, {apis} APIs"


def _end_on_sigterm() -> None:
    import signal

    def end(number: int, frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, end)  # the event loop's own handler takes its place
