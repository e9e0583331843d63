"""Answers say which shards they are without: in a header, and on the dashboard at the head of the page."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.sharding.missing import missing_shards

HEADER = "TaskLib-Missing-Shards"
"""The numbers of the shards that could not be asked, separated by commas."""


class MissingShards:
    """An ASGI middleware, for a server over several shards."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with missing_shards() as missing:

            async def marked(message: Message) -> None:
                if message["type"] == "http.response.start" and missing:
                    MutableHeaders(scope=message)[HEADER] = ", ".join(map(str, sorted(missing)))
                await send(message)

            await self.app(scope, receive, marked)
