EXPLAIN (FORMAT JSON) {include claim}
