-- Holds: objects that readers outside of the brokers use, such as the executors of a Spark query.
--
-- A reader gets a list of objects and reads them by itself. Meanwhile compaction and merging may put others in
-- their place, and retention or the deletion of a topic may remove them: then they are doomed. Garbage collection
-- leaves a doomed object alone while a hold has it. A hold that is not renewed is over at `until`, by the
-- database's clock; garbage collection removes its rows.

-- One row for each list of objects that was given out under a hold.
CREATE TABLE hold (
    id uuid NOT NULL,
    until timestamptz NOT NULL,
    objects bigint[] NOT NULL
);
CREATE INDEX hold_id ON hold (id);

-- Whose records an object has besides those that are asked for: a reader of an object reads all of it.
CREATE INDEX segment_object ON segment (object);

-- Adds objects to a hold, new or not; returns whether there was room: the rows are limited to `p_most`, because any
-- reader of a topic can make them.
CREATE FUNCTION hold_objects(p_hold uuid, p_seconds double precision, p_objects bigint[], p_most integer)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM hold) >= p_most THEN
        RETURN false;
    END IF;
    INSERT INTO hold (id, until, objects)
    VALUES (p_hold, clock_timestamp() + make_interval(secs => p_seconds), p_objects);
    RETURN true;
END $$;

-- Returns false if the hold is over: some of its objects may be deleted.
CREATE FUNCTION renew_hold(p_hold uuid, p_seconds double precision) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hold SET until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE id = p_hold AND until > clock_timestamp();
    RETURN FOUND;
END $$;

CREATE FUNCTION release_hold(p_hold uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM hold WHERE id = p_hold
$$;

-- Which of these objects a hold has.
CREATE FUNCTION held_objects(p_objects bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT DISTINCT wanted.id FROM unnest(p_objects) AS wanted(id)
    JOIN (SELECT unnest(h.objects) AS id FROM hold h WHERE h.until > clock_timestamp()) AS held USING (id)
$$;

CREATE FUNCTION remove_expired_holds() RETURNS void LANGUAGE sql AS $$
    DELETE FROM hold WHERE until <= clock_timestamp()
$$;
