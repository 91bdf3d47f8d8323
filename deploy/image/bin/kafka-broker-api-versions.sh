#!/bin/sh
exec /opt/kraftbox/bin/kraftbox kafka-broker-api-versions "$@"
