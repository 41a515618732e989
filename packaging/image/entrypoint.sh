#!/bin/sh
# Entry point of the image (docs/image.md). It finds the configuration, says what is wrong with a mounted volume in one
# line, and replaces itself with `ottla`, so that SIGTERM reaches the broker.
#
#   serve [OPTION]...       the broker (also when nothing, or only options are given)
#   config [OPTION]...      the configuration that it would start with
#   ping [OPTION]...        does this container's broker answer? For the health check
#   --help, --version       ottla's own
#   sh, bash, /a/program    that
#   COMMAND [ARGUMENT]...   ottla COMMAND, such as `topics list -b broker:9092`
set -eu

fail() {
  echo "ottla: $*" >&2
  exit 1
}

# The first server.properties that is mounted: our place, then that of Kafka's own image.
properties=""
for place in /etc/ottla/server.properties /mnt/shared/config/server.properties; do
  if [ -d "$place" ]; then
    fail "$place is a directory: the file that was to be mounted there does not exist on the host"
  fi
  if [ -e "$place" ]; then
    properties=$place
    break
  fi
done
# The image's own advertises the default listener by name, so it goes only with the default listener.
if [ -z "$properties" ] && [ -z "${KAFKA_LISTENERS:-}${KAFKA_CFG_LISTENERS:-}" ]; then
  properties=/usr/local/share/ottla/image.properties
fi

# The data is in ./data, in the volume, unless it is said to be elsewhere.
check_volume() {
  if [ -n "${KAFKA_LOG_DIRS:-}${KAFKA_LOG_DIR:-}${KAFKA_CFG_LOG_DIRS:-}${KAFKA_CFG_LOG_DIR:-}" ]; then return; fi
  if [ -n "$properties" ] && grep -Eqs '^[[:space:]]*log\.dirs?[[:space:]]*[=:[:space:]]' "$properties"; then return; fi
  # A volume where other images have their data would stay empty, and the data go with the container.
  for place in $(cut -d ' ' -f 2 /proc/self/mounts); do
    case "$place" in
      /bitnami | /bitnami/kafka | /bitnami/kafka/data | /var/lib/kafka | /var/lib/kafka/data)
        fail "a volume is mounted at $place, where another image of Kafka has its data, and nothing would be written there:" \
          "mount it at $PWD, or set KAFKA_LOG_DIRS to the directory of the data in it"
        ;;
    esac
  done
  place=$PWD
  if [ -d data ]; then place=$PWD/data; fi
  if [ -w "$place" ] && [ -x "$place" ]; then return; fi
  me=$(id -u):$(id -g)
  fail "user $me cannot write to $place, which belongs to $(stat -c %u:%g "$place"):" \
    "\`chown -R $me\` the directory or volume that is mounted, or run the container with --user $(stat -c %u:%g "$place")"
}

if [ $# -eq 0 ]; then set -- serve; fi
case "$1" in
  -h | --help | -V | --version)
    exec ottla "$@"
    ;;
  serve | -*)
    if [ "$1" = serve ]; then shift; fi
    case "${1:-}" in
      -h | --help) ;;
      "" | -*)
        check_volume
        if [ -n "$properties" ]; then set -- "$properties" "$@"; fi
        ;;
    esac
    exec ottla serve "$@"
    ;;
  config)
    shift
    case "${1:-}" in
      -h | --help) ;;
      "" | -*) if [ -n "$properties" ]; then set -- "$properties" "$@"; fi ;;
    esac
    exec ottla config "$@"
    ;;
  ping)
    shift
    case "${1:-}" in
      -b | --bootstrap-server*) ;;
      *) set -- --serving ${properties:+"$properties"} "$@" ;;
    esac
    exec ottla ping "$@"
    ;;
  sh | bash | /*)
    exec "$@"
    ;;
  *)
    exec ottla "$@"
    ;;
esac
