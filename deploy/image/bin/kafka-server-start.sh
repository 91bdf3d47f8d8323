#!/bin/sh
# kafka-server-start.sh [-daemon] server.properties [--override key=value]...
if [ "${1:-}" = -daemon ]; then
    shift
    mkdir -p "${LOG_DIR:=/opt/kafka/logs}" || exit 1
    nohup /opt/kraftbox/bin/kraftbox kafka-server-start "$@" >"$LOG_DIR/kafkaServer.out" 2>&1 </dev/null &
    exit 0
fi
exec /opt/kraftbox/bin/kraftbox kafka-server-start "$@"
