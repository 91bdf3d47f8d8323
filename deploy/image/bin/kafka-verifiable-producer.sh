#!/bin/sh
exec /opt/kraftbox/bin/kraftbox kafka-verifiable-producer "$@"
