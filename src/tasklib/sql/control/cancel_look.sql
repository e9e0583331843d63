-- How many a cancel would take, and the time, so that it takes none that comes later.
SELECT now(), count(*) FILTER (WHERE state <> 'running'), count(*) FILTER (WHERE state = 'running') FROM (
{include cancellable}
) AS task
