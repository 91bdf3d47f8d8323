"""Communication with the active controller: channel, registration, heartbeats, producer ids."""
