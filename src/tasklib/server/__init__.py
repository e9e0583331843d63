"""The HTTP server: `tasklib server`. Needs the extra `server`; nothing else in TaskLib imports it."""
