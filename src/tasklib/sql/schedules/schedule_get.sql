SELECT now(), {include schedule_columns}, {include schedule_last_runs}
FROM {schema.}schedules AS schedule
WHERE name = %(name)s
