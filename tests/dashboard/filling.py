"""Tasks as a shop would have them, and hostile ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/worker.py", line 214, in perform
    return await function(**arguments)
  File "/srv/shop/mail/tasks.py", line 38, in send_email
    await connection.send_message(message)
  File "/srv/shop/mail/smtp.py", line 91, in send_message
    raise ConnectionRefusedError(f"{host}:{port} refused the connection")
ConnectionRefusedError: smtp.example.com:587 refused the connection"""


def row(db: psycopg.Connection, state: str = "pending", *, ago: float = 60, **columns: Any) -> str:
    """One task created so many seconds ago; what the state needs besides is filled in. Returns its id."""
    values: dict[str, Any] = {"name": "send_email", **columns, "state": state}
    times = {"created_at": ago, "scheduled_at": ago}
    if state in ("running", "completed", "failed", "dead_letter"):
        times["started_at"] = ago * 0.9
    if state in ("completed", "cancelled", "dead_letter"):
        times["completed_at"] = ago * 0.8
    if state == "running":
        values.setdefault("worker_id", "web1-4711-k3x9")
        times["locked_until"] = -540
    if state == "failed":
        times["next_retry_at"] = -25
    for name in ("args", "kwargs", "result", "tags", "progress", "history", "trace_context"):
        if name in values:
            values[name] = json.dumps(values[name])
    names = [*values, *times]
    marks = ["%s"] * len(values) + ["now() - make_interval(secs => %s)"] * len(times)
    text = f"INSERT INTO tasks ({', '.join(names)}) VALUES ({', '.join(marks)}) RETURNING id::text"
    found = db.execute(text.encode(), [*values.values(), *times.values()]).fetchone()
    assert found is not None
    return str(found[0])


def attempt(number: int, error: str, *, worker: str = "web1-4711-k3x9") -> dict[str, Any]:
    """An entry of a task's history."""
    began = datetime.now(UTC) - timedelta(seconds=560 - number * 20)
    times = {"started_at": began.isoformat(), "ended_at": (began + timedelta(seconds=3.2)).isoformat()}
    return {"attempt": number, "token": number, "outcome": "error", "worker": worker, "error": error[-500:], **times}


def shop(db: psycopg.Connection) -> dict[str, str]:
    """An afternoon of a shop; the ids of those that a test looks at."""
    found: dict[str, str] = {}
    for n in range(18):
        kind = ["send_email", "resize_image", "billing.charge_card", "sync_inventory"][n % 4]
        queue = {"send_email": "mail", "resize_image": "media"}.get(kind, "default")
        row(db, "completed", ago=4000 - n * 90, name=kind, queue=queue, result={"value": {"ok": True}})
    for n in range(9):
        error = TRACEBACK.replace("587", str(580 + n))
        row(db, "dead_letter", ago=2600 - n * 100, queue="mail", error=error, retry_count=3, lease_token=4)
    for n in range(3):
        row(db, "dead_letter", ago=1900 - n * 60, name="resize_image", queue="media",
            error=f"Traceback\nValueError: image {n}81 is not a JPEG", retry_count=3)  # fmt: skip
    row(db, "cancelled", ago=1500, name="export_orders")
    for n in range(4):
        row(
            db,
            "failed",
            ago=700 - n * 50,
            name="billing.charge_card",
            error="Traceback\nTimeoutError: gateway",
            retry_count=n % 3 + 1,
        )
    found["dead"] = row(
        db, "dead_letter", ago=600, queue="mail", error=TRACEBACK, retry_count=3, lease_token=4,
        kwargs={"to": "ada@example.com", "smtp": {"host": "mx.example.com", "password": "hunter2"}, "api_token": "t0p"},
        tags={"customer": 42, "campaign": "spring"}, idempotency_key="welcome-42", timeout_seconds=30,
        trace_context={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        history=[attempt(1, "smtplib.SMTPServerDisconnected: Connection unexpectedly closed"),
                 attempt(2, "TimeoutError: timed out", worker="web2-99-b0"), attempt(3, TRACEBACK)],
    )  # fmt: skip
    found["running"] = row(
        db, "running", ago=95, name="reports.monthly", queue="reports", progress={"done": 63, "total": 90, "at": "eu"},
        kwargs={"month": "2026-04", "regions": ["eu", "us"]}, lease_token=1, timeout_seconds=900, priority=100,
    )  # fmt: skip
    row(db, "running", ago=12, name="resize_image", queue="media", worker_id="web2-99-b0")
    found["completed"] = row(
        db, "completed", ago=50, name="billing.charge_card", kwargs={"order": 1042, "amount": "19.90"},
        result={"value": {"charge": "ch_1042", "captured": True, "session_id": "s3cr3t"}}, lease_token=1,
    )  # fmt: skip
    for n in range(6):
        row(db, ago=30 - n * 4, queue="mail", kwargs={"to": f"user{n}@example.com"}, tags={"customer": n})
    found["pending"] = row(
        db, ago=3, name="generate_invoice", queue="billing", required_capabilities=["pdf"], kwargs={"order": 7}
    )
    db.execute("ANALYZE tasks")
    return found


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'><svg/onload=alert(3)>",
    "javascript:alert(4)",
    "{{7*7}}${7*7}",
    "\u202egnp.exe\u202c \u2066\u2069",
    "line\nbreak\ttab\x07bell\x1b[31m",
    "x" * 10_000,
    "\U0001f984" * 300,
]


def hostile_row(db: psycopg.Connection, evil: str, state: str) -> str:
    """A task with this text in every field that takes one."""
    # An index holds names of waiting tasks, and takes no more than 2,700 bytes of them.
    short = evil[:300] if state in ("pending", "failed") else evil
    return row(
        db, state, name=short, queue=short, args={"a": evil}, kwargs={evil[:200]: evil, "list": [evil]},
        result={"value": evil}, error=f"Traceback\n{evil}", tags={evil[:200]: evil}, progress={"a": evil},
        required_capabilities=[short], idempotency_key=str(uuid4()) + evil[:200], submitted_by=evil[:300],
        trace_context={"traceparent": evil}, history=[{**attempt(1, evil, worker=evil), "outcome": evil},
                                                      {"attempt": evil}, {"outcome": "replayed", "was": evil}],
        **({"worker_id": evil} if state == "running" else {}),
    )  # fmt: skip
