COALESCE(%(below)s::text, 'ffffffff-ffff-ffff-ffff-ffffffffffff')::uuid
