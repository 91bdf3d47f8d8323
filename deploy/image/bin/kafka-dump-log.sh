#!/bin/sh
exec /opt/kraftbox/bin/kraftbox kafka-dump-log "$@"
