#!/bin/sh
# kafka-broker-api-versions as a health check calls it: does a broker answer? By `ottla ping`, which asks for the same.
case "$*" in
  *--bootstrap-server*) exec ottla ping "$@" ;;
esac
echo "kafka-broker-api-versions: name a broker by --bootstrap-server HOST:PORT" >&2
exit 1
