"""Moves the messages that still wait in Celery's broker to TaskLib, while both run.

python -m tasklib.celery.bridge redis://localhost --import proj.tasks --burst

A message is acknowledged when its task is committed, under an idempotency key with Celery's id: one that is delivered
again makes no second task. What TaskLib can't take over goes back to the broker when the bridge ends, for Celery's
workers: parts of chains, groups and chords, callbacks, pickled messages, and tasks that were not imported.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from threading import Event
from typing import Any

from tasklib.celery.app import Celery, current_app_or_default, tasks
from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.celery.submitting import asked

logger = logging.getLogger(__name__)

QUEUE = "celery"
"""Celery's default queue; its tasks go where TaskLib's routes and settings say."""
_PARTS_OF_CANVAS = ("callbacks", "errbacks", "chain", "chord")
_LOOK_SECONDS = 1.0


class Bridge:
    """Takes messages of some queues of a broker and submits them."""

    def __init__(self, app: Celery, broker_url: str, queues: Iterable[str] = (QUEUE,)) -> None:
        self._app, self._broker_url, self._queues = app, broker_url, list(queues)
        self._kombu = _kombu()
        self._left: list[Any] = []
        self.moved: Counter[str] = Counter()
        """How many tasks of each name were moved."""
        self.left: Counter[str] = Counter()
        """How many messages stay in the broker, by reason."""

    def run(self, stop: Event, *, burst: bool = False) -> None:
        """Move messages until `stop` is set; with `burst` until none has come for a second."""
        with self._kombu.Connection(self._broker_url) as connection:
            consumer = connection.Consumer(
                [self._queue(name) for name in self._queues], on_message=self._take, accept=["json"], auto_declare=False
            )
            with consumer:
                while not stop.is_set():
                    try:
                        connection.drain_events(timeout=_LOOK_SECONDS)
                    except TimeoutError:
                        if burst:
                            break
                for message in self._left:
                    message.requeue()

    def _queue(self, name: str) -> Any:
        return self._kombu.Queue(name, self._kombu.Exchange(name, type="direct"), routing_key=name)

    def _take(self, message: Any) -> None:
        """Submit one message, or keep it from being delivered again until the end."""
        headers = message.headers or {}
        name = str(headers.get("task", "?"))
        if reason := self._unfit(name, message):
            self._leave(message, reason)
            return
        args, kwargs, _ = message.payload
        try:
            self._submit(name, tuple(args), dict(kwargs), headers, message.delivery_info.get("routing_key"))
        except (TypeError, ValueError, NotOnTaskLib) as e:  # such as arguments that no longer fit the function
            self._leave(message, f"{name}: {e}")
            return
        message.ack()
        self.moved[name] += 1

    def _leave(self, message: Any, reason: str) -> None:
        self._left.append(message)
        self.left[reason] += 1
        logger.warning("left to Celery: %s", reason)

    def _unfit(self, name: str, message: Any) -> str | None:
        if message.content_type != "application/json":
            return f"{name}: the message is {message.content_type}, not JSON"
        if name not in tasks:
            return f"{name}: no task of this name was imported"
        body = message.payload
        if not (isinstance(body, list) and len(body) == 3):
            return f"{name}: a message of an older protocol than Celery 4"
        embedded = body[2] or {}
        if message.headers.get("group") or any(embedded.get(part) for part in _PARTS_OF_CANVAS):
            return f"{name}: part of a chain, group or chord, or with callbacks"
        return None

    def _submit(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], headers: dict[str, Any], queue: str | None
    ) -> None:
        options = {
            "eta": _moment(headers.get("eta")),
            "expires": _moment(headers.get("expires")),
            "queue": None if queue in (None, QUEUE) else queue,
            "time_limit": (headers.get("timelimit") or [None])[0],
        }
        wish = asked(self._app, name, tasks[name], options)
        wish.options = replace(wish.options, idempotency_key=f"celery:{headers['id']}")
        self._app.submit_asked(name, args, kwargs, wish)


def _kombu() -> Any:
    """The library with which Celery reads its brokers; not one of TaskLib's own dependencies."""
    try:
        return import_module("kombu")
    except ModuleNotFoundError as e:
        raise SystemExit("the bridge reads Celery's broker with kombu: pip install 'kombu[redis]'.") from e


def _moment(said: str | None) -> datetime | None:
    if said is None:
        return None
    moment = datetime.fromisoformat(said)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 if nothing was left to Celery."""
    parser = argparse.ArgumentParser(
        prog="python -m tasklib.celery.bridge", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("broker", help="the address of Celery's broker, such as redis://localhost or amqp://")
    parser.add_argument("--import", dest="modules", action="append", default=[], help="a module with your tasks")
    parser.add_argument("--queue", dest="queues", action="append", help=f"a queue of Celery; {QUEUE} if you give none")
    parser.add_argument("--burst", action="store_true", help="end when the queues are empty")
    said = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.path.insert(0, "")
    for module in said.modules:
        import_module(module)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    bridge = Bridge(current_app_or_default(), said.broker, said.queues or [QUEUE])
    bridge.run(stop, burst=said.burst)
    print(f"{bridge.moved.total():,} moved, {bridge.left.total():,} left to Celery")
    for reason, count in bridge.left.items():
        print(f"  {count:,}  {reason}")
    return 1 if bridge.left else 0


if __name__ == "__main__":
    raise SystemExit(main())
