-- Insert any number of tasks given as one JSON array: the same statement through every driver.
INSERT INTO {schema.}tasks ({include submitted_columns})
SELECT {include submitted_values}
FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task ({include new_task})
-- The id was made by the client, so a submission whose answer was lost can be sent again.
ON CONFLICT (id) DO NOTHING
