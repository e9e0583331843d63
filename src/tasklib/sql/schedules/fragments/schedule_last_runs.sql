-- The states of its last runs, the newest first.
ARRAY(SELECT state::text FROM {schema.}tasks AS run
      WHERE run.schedule = schedule.name AND run.slot IS NOT NULL
      ORDER BY run.slot DESC LIMIT %(runs)s)
