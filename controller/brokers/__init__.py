"""Registration, fencing, shutdown and log directories of brokers."""
