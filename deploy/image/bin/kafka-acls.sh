#!/bin/sh
exec /opt/kraftbox/bin/kraftbox kafka-acls "$@"
