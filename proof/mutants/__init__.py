"""Each guard of the SQL, taken out one at a time: a test must turn red."""
