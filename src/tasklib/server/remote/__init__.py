"""Workers that come over HTTP: the server claims, settles and falls asleep for them, by the statements that workers
with a database of their own use. The protocol is described in docs/reference/worker-protocol.md."""
