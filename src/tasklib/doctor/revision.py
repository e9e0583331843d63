"""Are our tables there, and do they fit this version?"""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, critical, ok
from tasklib.errors import SchemaError
from tasklib.formatting import shell_option
from tasklib.migrations.revisions import head, is_of_0_1, known, require_current
from tasklib.store import schema

CODE = "schema_revision"


def look(config: Config) -> Call[list[Finding]]:
    option = f" {shell_option('--schema', config.schema)}" if config.schema else ""
    where: str | None = yield schema.where_is_tasks(config.schema)
    if where is None:
        named = f"the schema {config.schema!r}" if config.schema else "the search_path"
        seen = f"TaskLib's tables are not in {named}."
        return [critical(CODE, seen, "TaskLib can't work without them.", f"Create them: tasklib migrate{option}")]
    revision: str | None = yield schema.revision()
    try:
        require_current(revision, config.schema)
    except SchemaError as e:
        action = f"Bring it up to date: tasklib migrate{option}"
        if is_of_0_1(revision):
            action = f"Stop all workers and servers, then carry the tasks over: tasklib migrate --from-0.1{option}"
        elif revision is not None and revision not in known():
            action = "Upgrade tasklib-pg in this program."
        why = "This version's statements need the tables of its own revision."
        return [critical(CODE, str(e).partition(". ")[0] + ".", why, action, revision=revision, needed=head())]
    return [ok(CODE, f"The tables in the schema {where} are at revision {revision}.", schema=where, revision=revision)]
