CASE WHEN priority >= 100 THEN 'high' WHEN priority >= 0 THEN 'medium' ELSE 'low' END
