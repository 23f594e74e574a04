-- What has changed of the definitions that every broker keeps in memory: topics, users, permissions, quotas, settings.
-- Brokers ask for it a few times each second.

-- One row. Its lock is held until the change counts, so changes become visible in the order of their numbers.
--
-- Any broker creates topics. The transaction locks this row as soon as its lease is checked, so that it sees a topic of the
-- same name and whether the name was announced as a source of queues (space 28). It waits for no lock afterwards, because all
-- rows that it locks are its own: the order of locks in 03_commit.sql is kept.
CREATE TABLE last_change (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    seq bigint NOT NULL DEFAULT 0,
    -- Changes up to this one are removed.
    removed_to bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

INSERT INTO last_change DEFAULT VALUES;

CREATE TABLE change (
    seq bigint PRIMARY KEY,
    -- New, changed and deleted ones.
    topics uuid[] NOT NULL,
    -- Spaces of the table state.
    spaces smallint[] NOT NULL,
    changed_at timestamptz NOT NULL
);

-- In the transaction that changes them, as its last step: others wait for the number, which is returned.
CREATE FUNCTION note_change(p_topics uuid[], p_spaces smallint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    UPDATE last_change SET seq = seq + 1 RETURNING seq INTO number;
    INSERT INTO change (seq, topics, spaces, changed_at) VALUES (number, p_topics, p_spaces, clock_timestamp());
    RETURN number;
END $$;

-- The changes after `p_since`, and the number of the last one. Unless it is complete, the caller has to read all
-- definitions again: it is too far behind, or ahead of a database that has lost changes.
CREATE FUNCTION read_changes(
    p_since bigint, OUT last bigint, OUT is_complete boolean, OUT topics uuid[], OUT spaces smallint[]
) LANGUAGE sql STABLE AS $$
    SELECT last_change.seq, p_since BETWEEN last_change.removed_to AND last_change.seq,
           ARRAY(SELECT DISTINCT unnest(change.topics) FROM change WHERE change.seq > p_since),
           ARRAY(SELECT DISTINCT unnest(change.spaces) FROM change WHERE change.seq > p_since)
      FROM last_change
$$;

-- Housekeeping: removes changes that are older. Returns how many.
CREATE FUNCTION remove_changes(p_holder uuid, p_epoch bigint, p_seconds double precision) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    oldest_kept timestamptz := clock_timestamp() - make_interval(secs => p_seconds);
    newest bigint;
    removed integer;
BEGIN
    SELECT max(seq) INTO newest FROM change WHERE changed_at < oldest_kept;
    IF newest IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM check_coordinator(p_holder, p_epoch);
    UPDATE last_change SET removed_to = newest;
    DELETE FROM change WHERE seq <= newest;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
