-- The versions of time zones that live workers compute slots with, and on which hosts.
SELECT registration.tzdata, array_agg(DISTINCT registration.host)
FROM {schema.}worker_registrations AS registration
JOIN {schema.}workers AS worker USING (id)
WHERE worker.status <> 'dead' AND registration.tzdata IS NOT NULL
GROUP BY registration.tzdata
ORDER BY registration.tzdata
