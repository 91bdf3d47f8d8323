"""The quorum as a pure state machine: `QuorumCore.step(event, now_ms) -> list[Effect]`."""
