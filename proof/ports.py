"""Ports for programs that want to be told one, or have to keep it while they are started again."""

from __future__ import annotations

import random
import socket

_BELOW_THE_SYSTEMS = range(20_000, 32_000)
"""Linux gives connections, and servers on port 0, ports from 32768 on: what is free here stays so."""


def free_port() -> int:
    """A port of this machine that is not in use."""
    for port in random.SystemRandom().sample(_BELOW_THE_SYSTEMS, 100):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise RuntimeError("no port is free")
