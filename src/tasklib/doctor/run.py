"""A run: all checks, one after the other, whatever becomes of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import psycopg

from tasklib.client.async_clients import AsyncClient
from tasklib.client.clients import Client
from tasklib.db.failures import is_connection_loss
from tasklib.doctor.checks import CHECKS, Check
from tasklib.doctor.findings import Finding, Severity, critical, note
from tasklib.errors import DatabaseUnavailable, SchemaError

_KNOWN = (psycopg.Error, DatabaseUnavailable, SchemaError, TimeoutError, OSError)


def examine(client: Client, *, thorough: bool = True) -> list[Finding]:
    """Every finding. `thorough=False` leaves out what needs connections of its own: for those who look often."""
    if client.config.shards:
        each = {s.number: examine(client.on_shard(s.number), thorough=thorough) for s in client.config.shards}
        return _of_shards(each)
    run = _Run(thorough)
    for check in run.rounds():
        try:
            run.found(client.perform(check.look(client.config)))
        except _KNOWN as e:
            run.failed(check, e)
    return run.findings


async def examine_async(client: AsyncClient, *, thorough: bool = True) -> list[Finding]:
    """The same for asynchronous code."""
    if client.config.shards:
        numbers = [s.number for s in client.config.shards]
        return _of_shards({n: await examine_async(client.on_shard(n), thorough=thorough) for n in numbers})
    run = _Run(thorough)
    for check in run.rounds():
        try:
            run.found(await client.perform(check.look(client.config)))
        except _KNOWN as e:
            run.failed(check, e)
    return run.findings


def _of_shards(findings: Mapping[int, list[Finding]]) -> list[Finding]:
    return [
        replace(finding, seen=f"Shard {number}: {finding.seen}", details={**finding.details, "shard": number})
        for number, found in findings.items()
        for finding in found
    ]


class _Run:
    def __init__(self, thorough: bool) -> None:
        self.findings: list[Finding] = []
        self._thorough = thorough
        self._is_over = False

    def rounds(self) -> Iterator[Check]:
        for check in CHECKS:
            if self._is_over:
                return
            if check.opens_connections and not self._thorough:
                continue
            if check.needs_tables and not self._has_tables:
                continue
            yield check

    def found(self, findings: list[Finding]) -> None:
        self.findings += findings

    def failed(self, check: Check, error: Exception) -> None:
        """A check that fails doesn't prevent the next one, unless the database is unavailable."""
        said = " ".join(str(error).split()) or "no answer"
        if is_connection_loss(error) or isinstance(error, DatabaseUnavailable):
            action = "Check that the server runs and accepts writes, and that the URL, user and password are right."
            self.findings.append(critical("database_unavailable", said, "TaskLib can't work without it.", action))
            self._is_over = True
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            seen = f"Not checked: {check.name}. This user lacks the rights: {said}"
            self.findings.append(note("not_examined", seen, "", "GRANT pg_monitor TO this user;, or ask its owner."))
        else:
            self.findings.append(note("not_examined", f"Not examined: {check.name}. {said}"))

    @property
    def _has_tables(self) -> bool:
        revision = (f for f in self.findings if f.code == "schema_revision")
        return all(f.severity is not Severity.CRITICAL for f in revision)
