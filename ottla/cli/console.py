"""`ottla console`: a page in the browser that shows topics, records, groups and the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_options import bootstrap_server
from ottla.cli.client_properties import options_of
from ottla.cli.listening import ended_by_signal, listen_option, listening_errors, warn_of_others

if TYPE_CHECKING:
    from ottla.console.clients import ClientSettings

DEFAULT_LISTEN: Final = "127.0.0.1:9645"
"""Beside the broker's own HTTP port, 9644. Always the same, so that bookmarks stay valid."""


@click.command(short_help="Show topics, records and groups in a browser.")
@bootstrap_server
@listen_option(DEFAULT_LISTEN, "the page")
@click.option("--no-browser", is_flag=True, help="Only print the URL, and open no browser.")
@click.option("--read-only", is_flag=True, help="The page cannot write records.")
def console(servers: str, address: tuple[str, int], no_browser: bool, read_only: bool) -> None:
    """Serve a page that shows what is in the topics, who reads them and how the broker is configured, until Ctrl-C.

    The URL on standard output has a token, without which nothing is answered. The console is a client: it sees and does
    what the user of --command-config may, with Ottla and with Apache Kafka.

    \b
    Examples:
      ottla console
      ottla console -b kafka.example:9093 --command-config client.properties
      ottla console --listen 127.0.0.1:0 --no-browser
    """
    settings = _settings(servers)
    host, port = address
    logging.getLogger("ottla.client").setLevel(logging.CRITICAL)  # its warnings are errors in the page
    with suppress(KeyboardInterrupt):  # where the loop has no handlers of signals
        asyncio.run(_serve(settings, host, port, opens_browser=not no_browser, is_read_only=read_only))


def _settings(servers: str) -> ClientSettings:
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.client.options import AdminOptions
    from ottla.client.producer_options import ProducerOptions
    from ottla.console.clients import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, ClientSettings

    return ClientSettings(
        servers,
        admin=options_of(AdminOptions, servers, ADMIN_DEFAULTS),
        consumer=options_of(ConsumerOptions, servers, CONSUMER_DEFAULTS),
        producer=options_of(ProducerOptions, servers, PRODUCER_DEFAULTS),
    )


async def _serve(settings: ClientSettings, host: str, port: int, *, opens_browser: bool, is_read_only: bool) -> None:
    from ottla.console.running import running_console

    ended = ended_by_signal()
    async with AsyncExitStack() as stack:
        with listening_errors(host, port):
            url = await stack.enter_async_context(running_console(settings, host, port, is_read_only=is_read_only))
        warn_of_others(host, "anybody with the URL sees what you may see, and the connection is not encrypted")
        click.echo(url)
        if opens_browser and _has_browser():
            stack.enter_context(_browser_at(url))
        await ended.wait()


def _has_browser() -> bool:
    """Whether there is a screen: a browser for terminals would take over this one."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


@contextmanager
def _browser_at(url: str) -> Iterator[None]:
    """Open the page in a browser, by a file that only this user can read: all users see the arguments of a process."""
    target = escape(url)
    content = f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">The console</a>'
    with tempfile.TemporaryDirectory(prefix="ottla-console-") as folder:
        page = Path(folder) / "console.html"
        page.write_text(content)
        page.chmod(0o600)
        with suppress(OSError):  # the URL is printed anyway
            subprocess.Popen(
                [sys.executable, "-m", "webbrowser", page.as_uri()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        yield
