SELECT id::text FROM (
{include cancellable}
) AS task
