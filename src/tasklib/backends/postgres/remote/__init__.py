"""Workers that come over HTTP: a server claims, settles and sleeps for them. docs/reference/worker-protocol.md."""
