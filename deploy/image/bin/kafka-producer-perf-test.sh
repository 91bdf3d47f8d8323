#!/bin/sh
exec /opt/kraftbox/bin/kraftbox kafka-producer-perf-test "$@"
