"""Where the `ottla` program begins.

Before anything else the three standard files are there and write whatever they are given (`mend_standard_files`), and
the arguments are text (`_arguments`). A standard output that fails, a full disk for one, ends the program with one line
and status 1, wherever it was written to.

Two more things have to happen before click is imported, which takes longer than both:

- `ottla ping` in its plain form, as health checks run it every few seconds, is answered by `probe.py` alone, and
  `ottla --version` here; `ottla serve` in its plain form begins without click (`serving.py`). Anything that is not
  understood here, a mistake or `--help`, is passed on to click, which reports it.
- Ctrl-C ends the program quietly with status 130 from its first moment on, and `ottla serve` as process 1 of a
  container, where signals without a handler are ignored, can be stopped while it is still being imported.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys

from ottla.version import __version__

EXIT_OUTPUT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

OUTPUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What a write to standard output may fail with; a reader that goes away is `failures.closed_pipe_ends_quietly`'s."""

COMPLETION_VARIABLE = "_OTTLA_COMPLETE"
"""Set by the script that `ottla completion` prints, as click names it."""

COMMANDS_WITH_PATHS = {"serve", "config", "log"}
"""Names of files need not be UTF-8; all else that an argument may be goes to a broker or into records."""


def run() -> None:
    """Run the command line and end the process with its exit status."""
    mend_standard_files()
    arguments = sys.argv[1:] = _arguments(sys.argv[1:])
    try:
        if arguments[:1] == ["ping"]:
            status = quick_ping(arguments[1:])
            if status is not None:
                raise SystemExit(status)
        elif arguments in (["--version"], ["-V"]):
            raise SystemExit(_say(f"Ottla {__version__}"))
        elif arguments[:1] == ["serve"]:
            _end_on_sigterm()
            gc.disable()  # what a start makes stays; the server switches the collector on when it is ready
            from ottla.cli.serving import quick_serve

            status = quick_serve(arguments[1:]) if COMPLETION_VARIABLE not in os.environ else None
            if status is not None:
                raise SystemExit(status)
        if COMPLETION_VARIABLE in os.environ:
            import ottla.cli.completion  # noqa: F401  # what click does for bash is replaced there
        from ottla.cli.main import main

        main(prog_name="ottla")
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        _forget_output()
        sys.stderr.write(f"ottla: standard output: {error.strerror}\n")
        raise SystemExit(EXIT_OUTPUT_FAILED) from None


QUICK_MS = 5_000
"""What may take longer than this has to say what it waits for, which needs more than this module."""


VARIABLES_OF_A_CONNECTION = ("OTTLA_BOOTSTRAP_SERVER", "OTTLA_SECURITY_PROTOCOL", "OTTLA_COMMAND_CONFIG")
"""By which the environment says where the broker is, and how it is reached: `ottla.cli.ping` reads them."""


def quick_ping(arguments: list[str]) -> int | None:
    """The exit status of `ottla ping` with these arguments; None for those that are click's to understand."""
    from ottla.cli import probe

    if any(variable in os.environ for variable in VARIABLES_OF_A_CONNECTION):
        return None
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
    if len(servers) * timeout_ms > QUICK_MS:
        return None
    try:
        answer = probe.ping_first(servers, timeout_ms)
    except probe.NoAnswer as error:
        sys.stderr.write(f"ottla: {probe.problem_line(error)}\n")
        return 1
    return 0 if is_quiet else _say(answer_line(*answer))


def _say(line: str) -> int:
    """Write a line to standard output; the exit status. Nobody may read it: then there is nothing to complain about."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return EXIT_OUTPUT_FAILED
    return 0


def answer_line(address: str, elapsed_ms: float, apis: int) -> str:
    """What `ottla ping` says of a broker that answers."""
    return f"{address} answers after {elapsed_ms:.1f} ms, {apis} APIs"


def mend_standard_files() -> None:
    """Open a closed one (`>&-`), or the next file that is opened gets its number, and with it what is written there.

    What the terminal's encoding cannot show is escaped; names of files that are not UTF-8 come out as they are.
    """
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode))  # noqa: SIM115 (stays open)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _arguments(given: list[str]) -> list[str]:
    """The arguments as UTF-8, whatever the locale. Ends the program where a command cannot use one that is not."""
    arguments = []
    for one in given:
        try:
            arguments.append(os.fsencode(one).decode() if not one.isascii() and _is_undecoded(one) else one)
        except UnicodeDecodeError:
            if given[0] not in COMMANDS_WITH_PATHS:
                sys.stderr.write(f"ottla: an argument is not UTF-8: {os.fsencode(one)!r}\n")
                raise SystemExit(EXIT_USAGE) from None
            arguments.append(one)
    return arguments


def _is_undecoded(argument: str) -> bool:
    """Whether it has bytes that are no text in the locale's encoding; Python hands them on as lone surrogates."""
    return any("\udc80" <= character <= "\udcff" for character in argument)


def _forget_output() -> None:
    """Let what is still to be written to standard output go nowhere, or it fails again when the program ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _end_on_sigterm() -> None:
    import signal

    def end(number: int, frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, end)  # the event loop's own handler takes its place
