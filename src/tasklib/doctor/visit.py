"""A visit: all examinations, one after the other, whatever becomes of each."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from tasklib.client.clients import AsyncClient, Client
from tasklib.db.failures import is_connection_loss
from tasklib.doctor.examinations import EXAMINATIONS, Examination
from tasklib.doctor.findings import Finding, Severity, critical, note
from tasklib.errors import DatabaseUnavailable, SchemaError

_KNOWN = (psycopg.Error, DatabaseUnavailable, SchemaError, TimeoutError, OSError)


def examine(client: Client, *, thorough: bool = True) -> list[Finding]:
    """Every finding. `thorough=False` leaves out what needs connections of its own: for those who look often."""
    visit = _Visit(thorough)
    for examination in visit.rounds():
        try:
            visit.found(client.perform(examination.look(client.config)))
        except _KNOWN as e:
            visit.failed(examination, e)
    return visit.findings


async def examine_async(client: AsyncClient, *, thorough: bool = True) -> list[Finding]:
    """The same for asynchronous code."""
    visit = _Visit(thorough)
    for examination in visit.rounds():
        try:
            visit.found(await client.perform(examination.look(client.config)))
        except _KNOWN as e:
            visit.failed(examination, e)
    return visit.findings


class _Visit:
    def __init__(self, thorough: bool) -> None:
        self.findings: list[Finding] = []
        self._thorough = thorough
        self._is_over = False

    def rounds(self) -> Iterator[Examination]:
        for examination in EXAMINATIONS:
            if self._is_over:
                return
            if examination.opens_connections and not self._thorough:
                continue
            if examination.needs_tables and not self._has_tables:
                continue
            yield examination

    def found(self, findings: list[Finding]) -> None:
        self.findings += findings

    def failed(self, examination: Examination, error: Exception) -> None:
        """One examination that can't be made keeps nobody from the next, unless the database is gone."""
        said = " ".join(str(error).split()) or "no answer"
        if is_connection_loss(error) or isinstance(error, DatabaseUnavailable):
            action = "See that the server runs, that it takes writes, and that the URL, user and password are right."
            self.findings.append(critical("database_unavailable", said, "Nothing works without it.", action))
            self._is_over = True
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            seen = f"Not examined: {examination.name}. This user may not: {said}"
            self.findings.append(note("not_examined", seen, "", "GRANT pg_monitor TO this user;, or ask its owner."))
        else:
            self.findings.append(note("not_examined", f"Not examined: {examination.name}. {said}"))

    @property
    def _has_tables(self) -> bool:
        revision = (f for f in self.findings if f.code == "schema_revision")
        return all(f.severity is not Severity.CRITICAL for f in revision)
