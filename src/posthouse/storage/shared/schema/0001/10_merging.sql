-- Merging of small segments: new segments, all in one object, each in the place of consecutive ones of its log.
--
-- `p_old_merges` says which of the new segments, counted from 1, an old one goes into. A new segment is left out if
-- one of its old ones is no longer there or lies below the start of the log. Returns the numbers of the others.
CREATE FUNCTION merge_segments(
    p_holder uuid, p_epoch bigint, p_key text, p_size bigint,
    p_logs integer[], p_bases bigint[], p_lasts bigint[], p_positions bigint[], p_sizes bigint[],
    p_max_times bigint[], p_created bigint[], p_generations integer[], p_horizons bigint[], p_indexes bytea[],
    p_old_merges integer[], p_old_bases bigint[], p_old_generations integer[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    merged integer[];
    new_object bigint;
    old_objects bigint[];
BEGIN
    PERFORM check_housekeeper(p_holder, p_epoch, p_logs);
    -- The start of a log must not move meanwhile: what lies below it is not counted in the bytes of the log.
    PERFORM 1 FROM log WHERE id = ANY (p_logs) ORDER BY id FOR SHARE;
    -- The lock waits for a removal that deletes some of them, and leaves those out.
    SELECT coalesce(array_agg(whole.number), '{}') INTO merged FROM (
        SELECT locked.number FROM (
            SELECT o.number FROM unnest(p_old_merges, p_old_bases, p_old_generations) AS o(number, base, generation)
            JOIN log l ON l.id = p_logs[o.number]
            JOIN segment s ON s.log = l.id AND s.base = o.base AND s.generation = o.generation AND s.last >= l.start
            ORDER BY s.log, s.base FOR UPDATE OF s
        ) AS locked
        GROUP BY locked.number
        HAVING count(*) = (SELECT count(*) FROM unnest(p_old_merges) AS w(number) WHERE w.number = locked.number)
    ) AS whole;
    INSERT INTO object (key, size, live, doomed_at)
    VALUES (p_key, p_size, cardinality(merged), CASE cardinality(merged) WHEN 0 THEN now() END)
    RETURNING id INTO new_object;
    WITH removed AS (
        DELETE FROM segment s USING unnest(p_old_merges, p_old_bases) AS o(number, base)
        WHERE o.number = ANY (merged) AND s.log = p_logs[o.number] AND s.base = o.base RETURNING s.object
    )
    SELECT array_agg(object) INTO old_objects FROM removed;
    INSERT INTO segment (log, base, last, object, pos, size, max_time, created_ms, generation, horizon, index)
    SELECT n.log, n.base, n.last, new_object, n.pos, n.size, n.max_time, n.created_ms, n.generation, n.horizon, n.index
    FROM unnest(p_logs, p_bases, p_lasts, p_positions, p_sizes, p_max_times, p_created, p_generations, p_horizons,
        p_indexes) WITH ORDINALITY
        AS n(log, base, last, pos, size, max_time, created_ms, generation, horizon, index, number)
    WHERE n.number = ANY (merged);
    PERFORM release_objects(old_objects, array_fill(1, ARRAY[coalesce(cardinality(old_objects), 0)]));
    RETURN merged;
END $$;
