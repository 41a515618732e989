"""Notifications to systemd of the start and the stop: sd_notify(3), one datagram each, none without NOTIFY_SOCKET.

A unit of `Type=notify` counts as started when `READY=1` arrives. That is sent after all recovery, when clients may
connect.
"""

from __future__ import annotations

import logging
import os
import socket

LOG = logging.getLogger("ottla.server")

SOCKET_VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Send `state`, such as `READY=1`, to the socket that the environment names, if it names one."""
    address = os.environ.get(SOCKET_VARIABLE, "")
    if not address:
        return
    if address[0] == "@":  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messenger:
            messenger.sendto(state.encode(), address)
    except OSError as error:
        LOG.warning("cannot notify systemd of %s: %s", state, error)
