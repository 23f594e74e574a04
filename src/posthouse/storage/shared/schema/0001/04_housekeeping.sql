-- Housekeeping: bytes move from runs to segments, what is not used any more goes.
--
-- Every function that changes something checks the lease of the broker and the scopes of what it changes, and is one short
-- transaction. A crash before or after it loses nothing: an object without a row in `object` is an orphan, and all steps can
-- be repeated. A step that is refused has changed nothing, and is left to the broker that holds the scope now.

-- Raises PH001 if the lease of the broker is lost, PH006 unless it holds the scopes of housekeeping of these logs. The
-- holder of a scope of namespaces may work on its logs as well: it compacts them, and needs their segments for it.
CREATE FUNCTION check_housekeeper(p_holder uuid, p_epoch bigint, p_logs integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    PERFORM check_lease(p_holder, p_epoch);
    SELECT min(scope_of_log(named.id)) INTO missing FROM unnest(p_logs) AS named (id)
     WHERE scope_of_log(named.id) NOT IN (SELECT name FROM scope WHERE holder = p_holder)
       AND NOT EXISTS (SELECT FROM log JOIN scope ON scope.name = scope_of_namespaces(log.namespaces)
                        WHERE log.id = named.id AND scope.holder = p_holder);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'the broker does not hold the scope %', missing USING ERRCODE = 'PH006';
    END IF;
END $$;

-- For what removes records. In logs of a scope of namespaces that is for its holder, which knows what queues need of them.
-- Raises as check_housekeeper.
CREATE FUNCTION check_cleaner(p_holder uuid, p_epoch bigint, p_log integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    cleaned_by text;
BEGIN
    PERFORM check_lease(p_holder, p_epoch);
    -- The lock: it does not begin to feed queues before this transaction has ended.
    SELECT scope_of_namespaces(namespaces) INTO cleaned_by FROM log WHERE id = p_log FOR UPDATE;
    cleaned_by := coalesce(cleaned_by, scope_of_log(p_log));
    IF NOT EXISTS (SELECT FROM scope WHERE holder = p_holder AND name = cleaned_by) THEN
        RAISE EXCEPTION 'the broker does not hold the scope %', cleaned_by USING ERRCODE = 'PH006';
    END IF;
END $$;

-- How far periodic work has come that goes through time, such as the search for orphans.
CREATE TABLE sweep (
    name text PRIMARY KEY,
    done_to timestamptz NOT NULL
);

-- Keys of objects begin with the hour of their upload: objects/names.py. An object that is not in this table and
-- was uploaded a day ago is deleted as an orphan, so its row must not come later than that. The database's clock
-- decides both.
CREATE FUNCTION refuse_old_object() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key ~ '^\d{4}/\d\d/\d\d/\d\d/' AND make_timestamptz(
        substr(NEW.key, 1, 4)::integer, substr(NEW.key, 6, 2)::integer, substr(NEW.key, 9, 2)::integer,
        substr(NEW.key, 12, 2)::integer, 0, 0, 'UTC') < now() - interval '12 hours'
    THEN
        RAISE EXCEPTION 'object % was uploaded too long ago, or the clock of its broker is wrong', NEW.key
            USING ERRCODE = 'PH004';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER object_age BEFORE INSERT ON object FOR EACH ROW EXECUTE FUNCTION refuse_old_object();

-- Bytes of the batches of a segment: without the header of the file.
CREATE FUNCTION batch_bytes(segment) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1.size - 48';

-- The bytes of a log, counted: `log.bytes` is an estimate once its start has moved.
CREATE FUNCTION stored_bytes(p_log integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT sum(s.batch_bytes) FROM segment s WHERE s.log = l.id AND s.last >= l.start), 0)::bigint
        + coalesce((SELECT sum(r.size) FROM run r
                    WHERE r.log = l.id AND r.base >= l.segments_to AND r.last >= l.start), 0)::bigint
    FROM log l WHERE l.id = p_log
$$;

-- Takes uses from objects. An object without uses is doomed: it never gets one again. The rows are locked in the order
-- of their ids: two calls for the same objects would otherwise wait for each other.
CREATE FUNCTION release_objects(p_objects bigint[], p_uses integer[]) RETURNS void LANGUAGE sql AS $$
    SELECT FROM object WHERE id = ANY (p_objects) ORDER BY id FOR NO KEY UPDATE;
    UPDATE object o
    SET live = o.live - g.uses, doomed_at = CASE WHEN o.live = g.uses THEN now() END
    FROM (SELECT u.id, sum(u.uses)::integer AS uses FROM unnest(p_objects, p_uses) AS u(id, uses) GROUP BY u.id) AS g
    WHERE o.id = g.id
$$;

-- Consolidation: the runs of logs from `from` to before `to` are in an object now, as segments. Logs whose
-- `segments_to` is no longer `from` are left out; returns the others. `added` is what the bytes of a log change by,
-- unless its start has moved since it was read.
CREATE FUNCTION swap_runs(
    p_holder uuid, p_epoch bigint, p_key text, p_size bigint,
    p_logs integer[], p_froms bigint[], p_tos bigint[], p_starts bigint[], p_added bigint[],
    p_segment_logs integer[], p_bases bigint[], p_lasts bigint[], p_positions bigint[], p_sizes bigint[],
    p_max_times bigint[], p_created bigint[], p_indexes bytea[],
    p_run_logs integer[], p_run_objects bigint[], p_run_counts integer[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    swapped integer[];
    object_id bigint;
    uses integer;
BEGIN
    PERFORM check_housekeeper(p_holder, p_epoch, p_logs);
    SELECT coalesce(array_agg(locked.id), '{}') INTO swapped FROM (
        SELECT l.id FROM log l
        JOIN unnest(p_logs, p_froms, p_tos) AS w(id, read_from, read_to) ON w.id = l.id
        WHERE l.segments_to = w.read_from AND l.next >= w.read_to
        ORDER BY l.id FOR UPDATE OF l
    ) AS locked;
    SELECT count(*) INTO uses FROM unnest(p_segment_logs) AS s(log) WHERE s.log = ANY (swapped);
    IF p_key IS NOT NULL THEN
        INSERT INTO object (key, size, live, doomed_at)
        VALUES (p_key, p_size, uses, CASE uses WHEN 0 THEN now() END) RETURNING id INTO object_id;
        INSERT INTO segment (log, base, last, object, pos, size, max_time, created_ms, index)
        SELECT s.log, s.base, s.last, object_id, s.pos, s.size, s.max_time, s.created_ms, s.index
        FROM unnest(p_segment_logs, p_bases, p_lasts, p_positions, p_sizes, p_max_times, p_created, p_indexes)
            AS s(log, base, last, pos, size, max_time, created_ms, index)
        WHERE s.log = ANY (swapped);
    END IF;
    UPDATE log l SET segments_to = w.read_to, bytes = CASE l.start WHEN w.start THEN l.bytes + w.added ELSE l.bytes END
    FROM unnest(p_logs, p_tos, p_starts, p_added) AS w(id, read_to, start, added)
    WHERE l.id = w.id AND l.id = ANY (swapped);
    UPDATE log l SET bytes = stored_bytes(l.id)
    FROM unnest(p_logs, p_starts) AS w(id, start)
    WHERE l.id = w.id AND l.id = ANY (swapped) AND l.start <> w.start;
    PERFORM release_objects(array_agg(r.object), array_agg(r.uses))
    FROM unnest(p_run_logs, p_run_objects, p_run_counts) AS r(log, object, uses)
    WHERE r.log = ANY (swapped);
    RETURN swapped;
END $$;

-- Closes the open slot and opens the next free one. Returns the number of the open slot, which stays the same if
-- none is free. A commit that still writes to the closed slot does no harm: see truncate_slot.
CREATE FUNCTION open_next_slot(p_holder uuid, p_epoch bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    current_slot smallint;
    next_slot smallint;
BEGIN
    PERFORM check_coordinator(p_holder, p_epoch);
    SELECT number INTO current_slot FROM slot WHERE state = 'open' FOR UPDATE;
    SELECT number INTO next_slot FROM slot WHERE state = 'free' ORDER BY (number - current_slot + 16) % 16 LIMIT 1;
    IF next_slot IS NULL THEN
        RETURN current_slot;
    END IF;
    UPDATE slot SET state = 'closed', changed_at = now() WHERE number = current_slot;
    UPDATE slot SET state = 'open', changed_at = now() WHERE number = next_slot;
    RETURN next_slot;
END $$;

-- Empties a closed slot if all its runs are in segments or their logs are gone; returns whether it did. The first
-- lock keeps out commits, but not readers, while runs are looked at. A commit that read of this slot while it was open
-- and comes after that writes to a free slot: it is read from there, and keeps the slot from being emptied when its
-- turn comes again. TRUNCATE waits for readers, and all later readers wait behind it: so it gives up soon.
CREATE FUNCTION truncate_slot(p_holder uuid, p_epoch bigint, p_slot smallint) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    is_used boolean;
BEGIN
    EXECUTE format('LOCK TABLE run_%s, inline_data_%s IN SHARE MODE', p_slot, p_slot);
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM run_%s r JOIN log l ON l.id = r.log WHERE r.base >= l.segments_to)', p_slot
    ) INTO is_used;
    IF is_used THEN
        RETURN false;
    END IF;
    PERFORM check_coordinator(p_holder, p_epoch);
    UPDATE slot SET state = 'free', changed_at = now() WHERE number = p_slot AND state = 'closed';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    EXECUTE format('TRUNCATE run_%s, inline_data_%s', p_slot, p_slot);
    RETURN true;
END $$;

-- Removes producers without a batch since `before`, except those with an open transaction; at most `limit`, of the logs
-- of these scopes of housekeeping. Their logs are locked, as by a commit: a commit decides by the producers that it has
-- read. Returns how many.
CREATE FUNCTION expire_producers(
    p_holder uuid, p_epoch bigint, p_before bigint, p_limit integer, p_shards integer[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    logs integer[];
    removed integer;
BEGIN
    SELECT array_agg(DISTINCT found.log) INTO logs FROM (
        SELECT p.log FROM producer p
        WHERE p.last_time < p_before AND p.open_since < 0 AND shard_of_log(p.log) = ANY (p_shards) LIMIT p_limit
    ) AS found;
    IF logs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM check_housekeeper(p_holder, p_epoch, logs);
    PERFORM 1 FROM log WHERE id = ANY (logs) ORDER BY id FOR UPDATE;
    DELETE FROM producer p WHERE (p.log, p.id) IN (
        SELECT d.log, d.id FROM producer d
        WHERE d.log = ANY (logs) AND d.last_time < p_before AND d.open_since < 0 LIMIT p_limit);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- Removes segments that lie below the start of their log; at most `limit`. Returns how many.
CREATE FUNCTION remove_trimmed_segments(p_holder uuid, p_epoch bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    logs integer[];
    bases bigint[];
    objects bigint[];
BEGIN
    SELECT array_agg(dead.log), array_agg(dead.base) INTO logs, bases FROM (
        SELECT s.log, s.base FROM log l CROSS JOIN LATERAL (
            SELECT log, base FROM segment
            WHERE log = l.id AND base < l.start AND last < l.start ORDER BY base LIMIT p_limit
        ) AS s
        WHERE l.start > 0 LIMIT p_limit
    ) AS dead;
    IF logs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM check_coordinator(p_holder, p_epoch);
    WITH removed AS (
        -- The condition again: compaction may have put another segment in its place meanwhile.
        DELETE FROM segment s USING unnest(logs, bases) AS d(log, base), log l
        WHERE s.log = d.log AND s.base = d.base AND l.id = s.log AND s.last < l.start RETURNING s.object
    )
    SELECT array_agg(object) INTO objects FROM removed;
    PERFORM release_objects(objects, array_fill(1, ARRAY[coalesce(cardinality(objects), 0)]));
    RETURN coalesce(cardinality(objects), 0);
END $$;

-- One step of removing deleted topics: some of what comes first of runs, segments, producers, aborted transactions,
-- logs and topics. Returns how many rows; 0 when nothing is left.
CREATE FUNCTION remove_deleted_topics(p_holder uuid, p_epoch bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    logs integer[];
    objects bigint[];
    removed integer;
BEGIN
    IF NOT EXISTS (SELECT FROM topic WHERE deleted_at IS NOT NULL) THEN
        RETURN 0;
    END IF;
    PERFORM check_coordinator(p_holder, p_epoch);

    SELECT array_agg(locked.id) INTO logs FROM (
        SELECT l.id FROM log l JOIN topic t ON t.id = l.topic
        WHERE t.deleted_at IS NOT NULL AND l.segments_to < l.next
        ORDER BY l.id LIMIT greatest(p_limit / 100, 1) FOR UPDATE OF l
    ) AS locked;
    IF logs IS NOT NULL THEN
        PERFORM release_objects(array_agg(used.object), array_agg(used.uses)) FROM (
            SELECT r.object, count(*)::integer AS uses FROM run r JOIN log l ON l.id = r.log
            WHERE l.id = ANY (logs) AND r.base >= l.segments_to AND r.object IS NOT NULL GROUP BY r.object
        ) AS used;
        UPDATE log SET segments_to = next WHERE id = ANY (logs);
        RETURN cardinality(logs);
    END IF;

    WITH removed_segments AS (
        DELETE FROM segment s WHERE (s.log, s.base) IN (
            SELECT d.log, d.base FROM topic t JOIN log l ON l.topic = t.id JOIN segment d ON d.log = l.id
            WHERE t.deleted_at IS NOT NULL LIMIT p_limit)
        RETURNING s.object
    )
    SELECT array_agg(object) INTO objects FROM removed_segments;
    IF objects IS NOT NULL THEN
        PERFORM release_objects(objects, array_fill(1, ARRAY[cardinality(objects)]));
        RETURN cardinality(objects);
    END IF;

    DELETE FROM producer p WHERE (p.log, p.id) IN (
        SELECT d.log, d.id FROM topic t JOIN log l ON l.topic = t.id JOIN producer d ON d.log = l.id
        WHERE t.deleted_at IS NOT NULL LIMIT p_limit);
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed > 0 THEN
        RETURN removed;
    END IF;

    DELETE FROM aborted a WHERE (a.log, a.last) IN (
        SELECT d.log, d.last FROM topic t JOIN log l ON l.topic = t.id JOIN aborted d ON d.log = l.id
        WHERE t.deleted_at IS NOT NULL LIMIT p_limit);
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed > 0 THEN
        RETURN removed;
    END IF;

    -- In order: a broker that has not heard of the deletion may still try to append to several of them.
    SELECT array_agg(locked.id) INTO logs FROM (
        SELECT l.id FROM topic t JOIN log l ON l.topic = t.id WHERE t.deleted_at IS NOT NULL
        ORDER BY l.id LIMIT p_limit FOR UPDATE OF l
    ) AS locked;
    DELETE FROM log WHERE segments_to = next AND id = ANY (logs);
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed > 0 THEN
        RETURN removed;
    END IF;

    DELETE FROM topic t WHERE t.deleted_at IS NOT NULL AND NOT EXISTS (SELECT FROM log l WHERE l.topic = t.id);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- Removes the rows of doomed objects that are deleted from the object store.
CREATE FUNCTION forget_objects(p_holder uuid, p_epoch bigint, p_objects bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_coordinator(p_holder, p_epoch);
    DELETE FROM object WHERE id = ANY (p_objects) AND live = 0 AND doomed_at IS NOT NULL;
END $$;

-- Compaction: one new segment, alone in an object, in the place of consecutive ones. Returns the bytes that the log
-- grew by, or NULL if one of the old ones is no longer there: then nothing changes, and the object is doomed.
CREATE FUNCTION swap_segments(
    p_holder uuid, p_epoch bigint, p_log integer, p_old_bases bigint[], p_old_generations integer[],
    p_key text, p_base bigint, p_last bigint, p_size bigint, p_max_time bigint, p_created_ms bigint,
    p_generation integer, p_clean_to bigint, p_horizon bigint, p_index bytea
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    log_start bigint;
    old_objects bigint[];
    old_bytes bigint;
    new_object bigint;
    growth bigint;
BEGIN
    PERFORM check_cleaner(p_holder, p_epoch, p_log);
    SELECT start INTO log_start FROM log WHERE id = p_log;
    -- The lock waits for a removal that deletes some of them, and leaves those out: the removal releases their objects.
    SELECT array_agg(locked.object), sum(CASE WHEN locked.last >= log_start THEN locked.bytes ELSE 0 END)
    INTO old_objects, old_bytes
    FROM (
        SELECT s.object, s.last, s.batch_bytes AS bytes
        FROM segment s JOIN unnest(p_old_bases, p_old_generations) AS o(base, generation) USING (base, generation)
        WHERE s.log = p_log ORDER BY s.base FOR UPDATE OF s
    ) AS locked;
    IF coalesce(cardinality(old_objects), 0) < cardinality(p_old_bases) THEN
        INSERT INTO object (key, size, live, doomed_at) VALUES (p_key, p_size, 0, now());
        RETURN NULL;
    END IF;
    DELETE FROM segment WHERE log = p_log AND base = ANY (p_old_bases);
    INSERT INTO object (key, size, live) VALUES (p_key, p_size, 1) RETURNING id INTO new_object;
    INSERT INTO segment (
        log, base, last, object, pos, size, max_time, created_ms, generation, clean_to, horizon, index)
    VALUES (
        p_log, p_base, p_last, new_object, 0, p_size, p_max_time, p_created_ms, p_generation, p_clean_to, p_horizon,
        p_index);
    PERFORM release_objects(old_objects, array_fill(1, ARRAY[cardinality(old_objects)]));
    SELECT CASE WHEN p_last >= log_start THEN s.batch_bytes ELSE 0 END - old_bytes INTO growth
    FROM segment s WHERE s.log = p_log AND s.base = p_base;
    UPDATE log SET bytes = bytes + growth WHERE id = p_log;
    RETURN growth;
END $$;

-- Notes that a segment was compacted although nothing had to be removed from it.
CREATE FUNCTION note_compaction(
    p_holder uuid, p_epoch bigint, p_log integer, p_base bigint, p_generation integer, p_clean_to bigint,
    p_horizon bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_cleaner(p_holder, p_epoch, p_log);
    UPDATE segment SET clean_to = p_clean_to, horizon = p_horizon
    WHERE log = p_log AND base = p_base AND generation = p_generation;
END $$;

-- Removes aborted transactions of which compaction has left only the marker.
CREATE FUNCTION forget_aborted(p_holder uuid, p_epoch bigint, p_log integer, p_markers bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_cleaner(p_holder, p_epoch, p_log);
    DELETE FROM aborted WHERE log = p_log AND last = ANY (p_markers);
END $$;
