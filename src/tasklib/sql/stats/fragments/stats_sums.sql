sum(count)::bigint AS count, sum(seconds) AS seconds, sum(waited) AS waited,
    CASE WHEN max(cardinality(buckets)) > 0 THEN ARRAY[
        sum(buckets[1]), sum(buckets[2]), sum(buckets[3]), sum(buckets[4]), sum(buckets[5]), sum(buckets[6]),
        sum(buckets[7]), sum(buckets[8]), sum(buckets[9]), sum(buckets[10]), sum(buckets[11]), sum(buckets[12]),
        sum(buckets[13]), sum(buckets[14]), sum(buckets[15]), sum(buckets[16])]::bigint[] ELSE '{}' END AS buckets,
    CASE WHEN max(cardinality(waits)) > 0 THEN ARRAY[
        sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]),
        sum(waits[7]), sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]), sum(waits[12]),
        sum(waits[13]), sum(waits[14]), sum(waits[15]), sum(waits[16])]::bigint[] ELSE '{}' END AS waits
