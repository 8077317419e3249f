"""Values that go to the host in place of re-runs: which, and when each is sent and fetched."""
