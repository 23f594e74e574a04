-- Import of the data directory of a single broker, and export to one. An import needs an empty storage, and has an
-- exclusive lease until it is finished, also while it is interrupted: no broker serves half of the records.

CREATE TABLE local_import (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    -- The cluster id of the data directory, which becomes that of this cluster.
    source text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    -- Until a coordinator has found the scopes of namespaces of the topics that feed exchanges and queues, and of the
    -- broker's own: a data directory does not have them, and other brokers would append without references.
    awaits_coordinator boolean NOT NULL DEFAULT false
);

-- Whether brokers use the storage. The caller has locked last_epoch.
CREATE FUNCTION is_used(p_live_seconds double precision) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT FROM lease WHERE until > clock_timestamp())
        OR EXISTS (SELECT FROM broker WHERE seen_at > clock_timestamp() - make_interval(secs => p_live_seconds))
$$;

-- The `epoch` of an exclusive lease, absent while brokers use the storage, or another import or export; or the `loss`
-- because of which no broker can take a lease.
CREATE FUNCTION begin_export(p_holder uuid, p_seconds double precision, p_live_seconds double precision) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    lost text;
BEGIN
    PERFORM 1 FROM scope ORDER BY name FOR UPDATE;
    PERFORM 1 FROM last_epoch FOR UPDATE;
    IF is_used(p_live_seconds) THEN
        RETURN '{}';
    END IF;
    SELECT loss INTO lost FROM cluster;
    IF lost IS NOT NULL THEN
        RETURN jsonb_build_object('loss', lost);
    END IF;
    RETURN jsonb_build_object('epoch', take_everything(p_holder, p_seconds));
END $$;

-- The epoch of the lease. Raises PH005 with a sentence if the import is not possible. A second call for the same source
-- goes on with an import that was interrupted, and fences the first one.
CREATE FUNCTION begin_import(p_holder uuid, p_source text, p_live_seconds double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    known local_import;
BEGIN
    -- No broker can take a lease from here on.
    PERFORM 1 FROM scope ORDER BY name FOR UPDATE;
    PERFORM 1 FROM last_epoch FOR UPDATE;
    SELECT * INTO known FROM local_import WHERE finished_at IS NULL;
    IF known.source <> p_source THEN
        RAISE EXCEPTION 'the import of another data directory (cluster %) is unfinished; finish it first', known.source
            USING ERRCODE = 'PH005';
    ELSIF known.source IS NULL THEN
        IF is_used(p_live_seconds) THEN
            RAISE EXCEPTION 'a broker uses this storage; stop all of its brokers first' USING ERRCODE = 'PH005';
        ELSIF EXISTS (SELECT FROM topic) OR EXISTS (SELECT FROM state) OR EXISTS (SELECT FROM object) THEN
            RAISE EXCEPTION 'this storage is not empty; import into a new database' USING ERRCODE = 'PH005';
        END IF;
        INSERT INTO local_import (source, awaits_coordinator) VALUES (p_source, true)
            ON CONFLICT (single) DO UPDATE SET source = excluded.source, started_at = clock_timestamp(),
               finished_at = NULL, awaits_coordinator = true;
    END IF;
    UPDATE cluster SET id = p_source;
    RETURN take_everything(p_holder, extract(epoch FROM interval '100 years')::float8);
END $$;

-- Adds the segments of an object to the end of the segments of their logs, each log from `from` to before `to`.
CREATE FUNCTION import_segments(
    p_holder uuid, p_epoch bigint, p_key text, p_size bigint,
    p_logs integer[], p_froms bigint[], p_tos bigint[], p_added bigint[],
    p_segment_logs integer[], p_bases bigint[], p_lasts bigint[], p_positions bigint[], p_sizes bigint[],
    p_max_times bigint[], p_created bigint[], p_generations integer[], p_clean_tos bigint[], p_horizons bigint[],
    p_indexes bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    object_id bigint;
    changed integer;
BEGIN
    PERFORM check_coordinator(p_holder, p_epoch);
    UPDATE log l SET segments_to = w.read_to, bytes = l.bytes + w.added
    FROM unnest(p_logs, p_froms, p_tos, p_added) AS w(id, read_from, read_to, added)
    WHERE l.id = w.id AND l.segments_to = w.read_from AND l.next >= w.read_to;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(p_logs) THEN
        RAISE EXCEPTION 'the logs are not as the import left them' USING ERRCODE = 'PH005';
    END IF;
    INSERT INTO object (key, size, live) VALUES (p_key, p_size, cardinality(p_segment_logs)) RETURNING id INTO object_id;
    INSERT INTO segment (log, base, last, object, pos, size, max_time, created_ms, generation, clean_to, horizon, index)
    SELECT s.log, s.base, s.last, object_id, s.pos, s.size, s.max_time, s.created_ms, s.generation, s.clean_to,
           s.horizon, s.index
    FROM unnest(p_segment_logs, p_bases, p_lasts, p_positions, p_sizes, p_max_times, p_created, p_generations,
                p_clean_tos, p_horizons, p_indexes)
        AS s(log, base, last, pos, size, max_time, created_ms, generation, clean_to, horizon, index);
END $$;

-- Brokers may take leases now.
CREATE FUNCTION finish_import(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_coordinator(p_holder, p_epoch);
    UPDATE local_import SET finished_at = clock_timestamp();
    PERFORM release_lease(p_holder, p_epoch);
END $$;

-- The topics of namespaces have their scopes: other brokers may append.
CREATE FUNCTION admit_members(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_coordinator(p_holder, p_epoch);
    UPDATE local_import SET awaits_coordinator = false WHERE awaits_coordinator;
END $$;
