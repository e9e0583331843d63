"""Tasks as a shop would have them, and tasks as nobody should."""

from __future__ import annotations

import json
from typing import Any

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
    times = {"started_at": f"2026-05-04T12:0{number}:00+00:00", "ended_at": f"2026-05-04T12:0{number}:03.2+00:00"}
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
