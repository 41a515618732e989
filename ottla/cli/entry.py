"""The entry point of the `ottla` program.

It first opens the three standard files if they are closed, and makes them accept any text (`mend_standard_files`). Then
it decodes the arguments (`_arguments`). If a write to standard output fails, for example on a full disk, the program
ends with one line and status 1, wherever the write was.

Two things have to happen before click is imported, since that takes longer than both of them:

- Simple command lines run without click: `ottla ping`, which health checks run every few seconds, by `probe.py`;
  `ottla --version` here; `ottla serve` by `serving.py`. All other command lines, with errors or `--help`, are passed on
  to click, which reports them.
- Signals work from the first moment. Ctrl-C ends the program quietly with status 130. `ottla serve` can be stopped
  during its imports, also as process 1 of a container, where signals without a handler are ignored.
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
"""Errors of a write to standard output. `failures.closed_pipe_ends_quietly` handles a reader that goes away."""

COMPLETION_VARIABLE = "_OTTLA_COMPLETE"
"""Set by the script that `ottla completion` prints, as click names it."""

COMMANDS_WITH_PATHS = {"serve", "config", "log"}
"""Commands whose arguments need not be UTF-8, since they are file names. Other arguments are sent to a broker."""


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
            gc.disable()  # objects of a start stay; the server switches the collector on when it is ready
            from ottla.cli.serving import quick_serve

            status = quick_serve(arguments[1:]) if COMPLETION_VARIABLE not in os.environ else None
            if status is not None:
                raise SystemExit(status)
        if COMPLETION_VARIABLE in os.environ:
            import ottla.cli.completion  # noqa: F401  # it replaces click's support for bash
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
"""A ping that may take longer has to report what it waits for, which needs more than this module."""


VARIABLES_OF_A_CONNECTION = ("OTTLA_BOOTSTRAP_SERVER", "OTTLA_SECURITY_PROTOCOL", "OTTLA_COMMAND_CONFIG")
"""Variables that name the broker and how to connect to it; `ottla.cli.ping` reads them."""


def quick_ping(arguments: list[str]) -> int | None:
    """The exit status of `ottla ping` with these arguments; None if click has to parse them."""
    from ottla.address import parse_servers
    from ottla.cli import probe

    if any(variable in os.environ for variable in VARIABLES_OF_A_CONNECTION):
        return None
    servers, timeout_ms, is_quiet = parse_servers(probe.DEFAULT_SERVER), probe.DEFAULT_TIMEOUT_MS, False
    rest = iter(arguments)
    for option in rest:
        if option in ("-q", "--quiet"):
            is_quiet = True
            continue
        value = next(rest, "")
        if option in ("-b", "--bootstrap-server"):
            try:
                servers = parse_servers(value)
            except ValueError:
                return None
        elif option == "--timeout-ms" and _is_time(value):
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


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**31)) and 0 < int(text) < 2**31


def _say(line: str) -> int:
    """Write a line to standard output, and return the exit status. A closed pipe is not an error."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return EXIT_OUTPUT_FAILED
    return 0


def answer_line(address: str, elapsed_ms: float, apis: int) -> str:
    """The line of `ottla ping` about a broker that answers."""
    return f"{address} answers after {elapsed_ms:.1f} ms, {apis} APIs"


def mend_standard_files() -> None:
    """Open closed standard files (`>&-`): else the next file that is opened gets the number of one, and its output.

    Characters that the terminal's encoding lacks are escaped; file names that are not UTF-8 are written unchanged.
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
    """The arguments, decoded as UTF-8 in every locale. Ends the program if one is not UTF-8 and not a file name."""
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
    """Whether it has bytes that the locale's encoding cannot decode; Python passes them on as lone surrogates."""
    return any("\udc80" <= character <= "\udcff" for character in argument)


def _forget_output() -> None:
    """Discard the output that is still buffered: its write would fail again when the program ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _end_on_sigterm() -> None:
    import signal

    def end(number: int, frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, end)  # the event loop replaces it by its own
