"""Handlers of a test's own in place of the broker's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.api import HANDLERS, Handler, LoadHandler
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.requests.dispatch import RequestDispatcher
from ottla.broker.requests.gate import Gate
from ottla.protocol.api import ApiKey


def stub_handler(handle: Callable[[Any, Context], Any]) -> LoadHandler:
    """A handler that needs no right and is never chunked."""
    return lambda: Handler(handle, (), ())


def dispatcher_with(node: Node, key: ApiKey, handle: Callable[[Any, Context], Any]) -> RequestDispatcher:
    """A dispatcher for the node's connections, with this handler of one API."""
    return RequestDispatcher(node.services, Gate(node.services, {**HANDLERS, key: stub_handler(handle)}))
