"""This broker and the active controller: channel, registration, heartbeats, producer ids."""
