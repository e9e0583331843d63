EXPLAIN (FORMAT JSON) {statement claim}
