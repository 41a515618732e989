#!/bin/sh
# kafka-topics as health checks and init containers call it: --list, --create and --describe, by `ottla topics`.
set -eu
refuse() {
  echo "kafka-topics: $*; this image has --list, --create and --describe, and \`ottla topics --help\`" >&2
  exit 1
}
action="" topic="" all=--all left=$#
while [ "$left" -gt 0 ]; do # each word is taken from the front, and its translation put at the end
  word=$1 left=$((left - 1))
  shift
  case "$word" in
    --*=*) # --topic=orders is --topic orders
      set -- "${word#*=}" "$@"
      word=${word%%=*} left=$((left + 1))
      ;;
  esac
  case "$word" in
    --list | --create | --describe) action=${word#--} ;;
    --if-not-exists) set -- "$@" "$word" ;;
    --exclude-internal) all="" ;;
    --topic | --bootstrap-server | --command-config | --partitions | --replication-factor | --config)
      if [ "$left" -eq 0 ]; then refuse "$word has no value"; fi
      value=$1 left=$((left - 1))
      shift
      if [ "$word" = --topic ]; then topic=$value; else set -- "$@" "$word" "$value"; fi
      ;;
    *) refuse "$word is not known here" ;;
  esac
done
case "$action" in
  "") refuse "there is nothing to do" ;;
  list) if [ -n "$topic" ]; then refuse "--list with --topic is not known here"; fi ;;
  *) all="" ;;
esac
exec ottla topics "$action" "$@" ${all:+"$all"} ${topic:+"$topic"}
