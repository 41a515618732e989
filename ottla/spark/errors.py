"""The errors of source and sink, each with a message of one line that a user can act on.

Spark wraps an exception of a data source in its own and adds a trace. The message here is the line that matters, so it
names the option, the topic-partition or the address. `CorruptBatch` (ottla.protocol.records) is raised with the
topic-partition and offset before its message.
"""

from __future__ import annotations


class OptionError(ValueError):
    """An option that cannot be used: unknown, contradictory, or of a wrong value. Raised on the driver."""


class SchemaError(ValueError):
    """A column of the user's `.schema(...)` that the source does not have, or has with another type."""


class BrokerUnavailable(ConnectionError):
    """No broker could be reached, or none answered in time; names the addresses and the time."""


class ProtocolFailure(RuntimeError):
    """A broker answered with an error that does not pass, or with bytes that are no Kafka response."""


class AuthenticationFailed(ProtocolFailure):
    """Broker and source do not accept each other: the login, a certificate, or TLS where there is none."""


class DataLoss(RuntimeError):
    """Records that the query was to read are gone; `failOnDataLoss=false` turns this into a warning."""


class WriteFailed(RuntimeError):
    """Records could not be written; names the topic-partition and the broker's error."""


class reported_in_one_line:  # noqa: N801  # used as a statement, like contextlib's own
    """Remove the trace of an error whose message is sufficient: Spark prints the whole trace, with the message last.

    A class, since contextlib's decorator restores the old trace of an error that its function raises again.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise an error of this module again, as if it came from here."""
        if isinstance(error, _REPORTED):
            raise error.with_traceback(None) from None


_REPORTED = (
    OptionError,
    SchemaError,
    DataLoss,
    BrokerUnavailable,
    ProtocolFailure,
    WriteFailed,
)
