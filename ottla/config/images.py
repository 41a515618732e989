"""Variables of other images of Kafka: Bitnami's, Confluent's, wurstmeister's. None of them is ignored silently.

Apache Kafka's own image spells keys as `KAFKA_LOG_RETENTION_MS` (`sources.py`, which also reads Bitnami's spelling
`KAFKA_CFG_LOG_RETENTION_MS`). Other variables of these images are applied here where that is possible. A variable that
means nothing to this broker is named in a warning. One is refused, as a ConfigError in one line, if the broker would
otherwise lack something that its user relies on. docs/image.md has the table; an empty variable counts as not set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ottla.config.errors import ConfigError
from ottla.config.listeners import parse_advertised_listeners
from ottla.config.options import Given, Origin, OriginKind
from ottla.plain import Plain, field

DEFAULT_PORT = 9092

CLUSTER_ID_VARIABLES = ("CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID")
"""The cluster's id in the images of Apache Kafka and Confluent, of Bitnami, and of Bitnami since Kafka 4."""

_ADDRESSES = ("KAFKA_ADVERTISED_HOST_NAME", "KAFKA_ADVERTISED_PORT", "KAFKA_HOST_NAME", "KAFKA_PORT")
"""The one listener's address in wurstmeister's image, and in Kafka before 0.10. Kubernetes sets KAFKA_PORT to a URL."""

_CREATE_TOPICS, _CREATE_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR"
"""Topics that wurstmeister's image creates, and the characters between them (the shell's `IFS`) in place of a comma."""

_WORDS = ("KAFKA", "BITNAMI", "CONFLUENT", "_COMMAND", "CUSTOM_INIT_SCRIPT")
"""Each variable that a pattern below matches contains one of these words."""
_NO_EFFECT = (
    (
        r"KAFKA_(?:HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|JMX.*|DEBUG.*|EXTRA_FLAGS)",
        "there is no JVM; metrics are served at ottla.http.listener",
    ),
    (r"KAFKA_(?:TOOLS_)?LOG4J.*|BITNAMI_DEBUG", "the log's level is that of `ottla serve --log-level`"),
    (
        r"KAFKA_ENABLE_KRAFT|KAFKA_SKIP_KRAFT_STORAGE_INIT|KAFKA_INITIAL_CONTROLLERS",
        "the broker is its own controller",
    ),
    (r"(?:KAFKA_)?CONFLUENT_.*", "it is about Confluent's own additions"),
    (
        r"BITNAMI_(?!DEBUG).*|KAFKA_(?:BASE|CONF|MOUNTED_CONF|CERTS|INITSCRIPTS)_DIR|KAFKA_CONF_FILE|KAFKA_CLIENT_LISTENER_NAME",
        "it is about the internals of Bitnami's image",
    ),
)

_NO_LOGINS = "is about logins to Bitnami's image; set sasl.jaas.config for PLAIN, and SCRAM users by kafka-configs"
_NO_TLS = (
    "is for the TLS files of another image; remove it, and set KAFKA_SSL_KEYSTORE_TYPE=PEM, "
    "KAFKA_SSL_KEYSTORE_LOCATION and the like, with absolute paths"
)
_REFUSED = (
    (
        r"KAFKA_(?:CLIENT_USERS|CLIENT_PASSWORDS|KRAFT_BOOTSTRAP_SCRAM_USERS"
        r"|(?:INTER_BROKER|CONTROLLER)_(?:USER|PASSWORD|CLIENT_ID|CLIENT_SECRET))",
        _NO_LOGINS,
    ),
    (
        r"KAFKA_TLS_.*|KAFKA_CERTIFICATE_PASSWORD|KAFKA_SSL_(?:KEYSTORE|KEY|TRUSTSTORE)_(?:FILENAME|CREDENTIALS)",
        _NO_TLS,
    ),
    (r"KAFKA_(?:DATA|VOLUME)_DIR", "names a directory in Bitnami's image; set KAFKA_LOG_DIRS"),
    (
        r"(?:HOSTNAME|PORT|BROKER_ID|RACK)_COMMAND|CUSTOM_INIT_SCRIPT",
        "is a command for wurstmeister's image; remove it, and set the key that it finds out: "
        "KAFKA_ADVERTISED_LISTENERS (`auto` sends clients to the address that they have connected to), "
        "KAFKA_NODE_ID, KAFKA_BROKER_RACK",
    ),
)


class ImageVariables(Plain):
    """The keys that other images' variables set, and one line for each group of variables without effect."""

    given: dict[str, Given] = field(factory=dict)
    remarks: list[str] = field(factory=list)
    forbids_plaintext: bool = False
    """Whether no listener may be without TLS and a login (`ALLOW_PLAINTEXT_LISTENER=no`)."""


def is_for_an_image(variable: str) -> bool:
    """Whether a variable is read here, and is not a spelling of a key."""
    if variable in CLUSTER_ID_VARIABLES or variable in _ADDRESSES:
        return True
    if variable in (_CREATE_TOPICS, _CREATE_TOPICS_SEPARATOR):
        return True
    return _is_of_an_image(variable) and any(re.fullmatch(pattern, variable) for pattern, _ in (*_NO_EFFECT, *_REFUSED))


def _is_of_an_image(variable: str) -> bool:
    """Whether any pattern may match: most environments have no such variable, and then no pattern is compiled."""
    return any(word in variable for word in _WORDS)


def read_image_variables(
    environ: Mapping[str, str], *, file: Mapping[str, Given], stronger: Mapping[str, Given]
) -> ImageVariables:
    """The meaning of other images' variables, given the keys of the `file` and those that override it (`stronger`).

    Raises ConfigError with the name of a variable that is refused.
    """
    found = ImageVariables()
    variables = sorted(name for name, value in environ.items() if value and _is_of_an_image(name))
    for variable in variables:
        for pattern, reason in _REFUSED:
            if re.fullmatch(pattern, variable):
                raise ConfigError(variable, None, reason, origin="environment")
    if environ.get("ALLOW_PLAINTEXT_LISTENER"):
        _allow_plaintext(environ["ALLOW_PLAINTEXT_LISTENER"], found)
    for pattern, reason in _NO_EFFECT:
        if idle := [variable for variable in variables if re.fullmatch(pattern, variable)]:
            found.remarks.append(f"{', '.join(idle)}: no effect, {reason} (environment)")
    _cluster_id(environ, found)
    _create_topics(environ, found)
    _old_address(environ, found, file=file, stronger=stronger)
    if "listeners" not in {**file, **found.given, **stronger}:
        _listen_where_clients_are_sent({**found.given, **stronger}.get("advertised.listeners"), found)
    return found


def _given(text: str, variables: Iterable[str]) -> Given:
    return Given(text, Origin(OriginKind.ENVIRONMENT, f"environment {', '.join(variables)}"))


def _allow_plaintext(value: str, found: ImageVariables) -> None:
    if value.lower() in ("no", "false", "0"):
        found.forbids_plaintext = True
        return
    found.remarks.append("ALLOW_PLAINTEXT_LISTENER: no effect, PLAINTEXT needs no permission (environment)")


def _cluster_id(environ: Mapping[str, str], found: ImageVariables) -> None:
    named = [variable for variable in CLUSTER_ID_VARIABLES if environ.get(variable)]
    if not named:
        return
    for other in named[1:]:
        if environ[other] != environ[named[0]]:
            raise ConfigError(other, environ[other], f"is another cluster than {named[0]} says; set one of them")
    found.given["ottla.cluster.id"] = _given(environ[named[0]], named[:1])


def _create_topics(environ: Mapping[str, str], found: ImageVariables) -> None:
    """The topics, with semicolons between them if a separator is named."""
    text, separator = environ.get(_CREATE_TOPICS), environ.get(_CREATE_TOPICS_SEPARATOR)
    if not text:
        if separator:
            found.remarks.append(f"{_CREATE_TOPICS_SEPARATOR}: no effect without {_CREATE_TOPICS} (environment)")
        return
    if separator:
        # `$'\n'` is how a shell, and the image's own documentation, write the end of a line.
        characters = "\n" if separator.strip("$'\"") == "\\n" else separator
        text = ";".join(re.split(f"[{re.escape(characters)}]", text)) + ";"
    found.given["ottla.create.topics"] = _given(text, [_CREATE_TOPICS])


def _old_address(
    environ: Mapping[str, str], found: ImageVariables, *, file: Mapping[str, Given], stronger: Mapping[str, Given]
) -> None:
    values = {variable: environ[variable] for variable in _ADDRESSES if environ.get(variable)}
    if not values.get("KAFKA_PORT", "0").isdecimal():
        del values["KAFKA_PORT"]  # set by Kubernetes for a service named kafka
    listener = {name: values[name] for name in ("KAFKA_HOST_NAME", "KAFKA_PORT") if name in values}
    advertised = {name: value for name, value in values.items() if name not in listener}
    port = values.get("KAFKA_PORT", str(DEFAULT_PORT))
    if listener and ("listeners" in file or "listeners" in stronger):
        found.remarks.append(f"{', '.join(listener)}: no effect, listeners says where to listen (environment)")
    elif listener:
        found.given["listeners"] = _given(f"PLAINTEXT://{values.get('KAFKA_HOST_NAME', '')}:{port}", listener)
    if advertised and "advertised.listeners" in stronger:
        found.remarks.append(f"{', '.join(advertised)}: no effect, advertised.listeners is set (environment)")
    elif advertised and "KAFKA_ADVERTISED_HOST_NAME" not in values:
        reason = "needs KAFKA_ADVERTISED_HOST_NAME; set KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://host:port instead"
        raise ConfigError("KAFKA_ADVERTISED_PORT", values["KAFKA_ADVERTISED_PORT"], reason, origin="environment")
    elif advertised:
        address = f"{values['KAFKA_ADVERTISED_HOST_NAME']}:{values.get('KAFKA_ADVERTISED_PORT', port)}"
        found.given["advertised.listeners"] = _given(f"PLAINTEXT://{address}", advertised)


def _listen_where_clients_are_sent(advertised: Given | None, found: ImageVariables) -> None:
    """Derive `listeners` from the advertised ones where only these are set, with the same ports, as Confluent's image.

    This is done only where their names differ from the default listener's, so that the start would be refused.
    """
    if advertised is None or advertised.origin.kind is not OriginKind.ENVIRONMENT:
        return
    try:
        named = parse_advertised_listeners(advertised.text)
    except ValueError:
        return  # the reader of the key itself reports it better
    if not named:
        return
    if [listener.name for listener in named] != ["PLAINTEXT"]:
        text = ",".join(f"{listener.name}://:{listener.port}" for listener in named)
        found.given["listeners"] = Given(text, advertised.origin)
        found.remarks.append(
            f"listeners are not set: listening where clients are sent to, {text} ({advertised.origin})"
        )
    elif named[0].port != DEFAULT_PORT:
        found.remarks.append(
            f"listeners are not set: clients are sent to port {named[0].port}, the broker listens at {DEFAULT_PORT}; "
            f"unless a port is mapped there, set KAFKA_LISTENERS=PLAINTEXT://:{named[0].port} ({advertised.origin})"
        )
