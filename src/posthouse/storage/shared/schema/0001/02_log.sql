-- Topics, their logs, and where the bytes of a log lie.
--
-- The bytes of a log below `log.segments_to` lie in segments, those above it in runs. A run is some batches of one log
-- that one commit wrote. Its batches have no offsets yet: readers stamp them, from `base` on.
--
-- Runs and inline data are in one of 16 slots, which are used in turn. Nothing is deleted from a slot: once every run
-- in it is below its log's `segments_to`, or its log is gone, the slot is truncated. So the tables shrink without
-- vacuum.

CREATE TABLE topic (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    partitions integer NOT NULL,
    overrides jsonb NOT NULL,
    -- Number of the scope of the namespace whose queues it feeds, or whose own it is. Only the holder appends to its
    -- logs: their records are routed to queues in the same commit. It is set before the first route counts, and never
    -- changed or taken back. NULL for all other topics.
    namespaces smallint,
    -- Its rows and objects are removed in the background.
    deleted_at timestamptz
);
CREATE UNIQUE INDEX topic_name ON topic (name) WHERE deleted_at IS NULL;

CREATE TABLE log (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic uuid NOT NULL REFERENCES topic,
    partition integer NOT NULL,
    start bigint NOT NULL DEFAULT 0,
    -- The next offset: the end of the log.
    next bigint NOT NULL DEFAULT 0,
    -- Bytes of the batches from start to next: an estimate once the start has moved. stored_bytes counts.
    bytes bigint NOT NULL DEFAULT 0,
    segments_to bigint NOT NULL DEFAULT 0,
    -- The first offset of the oldest open transaction; NULL without one. commit_group keeps it up to date.
    first_open bigint,
    -- As of its topic: commit_group has locked the log and need not look for the topic.
    namespaces smallint,
    deleted boolean NOT NULL DEFAULT false,
    UNIQUE (topic, partition)
) WITH (fillfactor = 50);

-- The scope of housekeeping that a log belongs to (model/scopes.py).
CREATE FUNCTION shard_of_log(p_log integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((p_log * 2654435761 & 4294967295) >> 28)::integer
$$;
CREATE FUNCTION scope_of_log(p_log integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'housekeeping/' || lpad(((p_log * 2654435761 & 4294967295) >> 28)::text, 2, '0')
$$;

-- The name of the scope of namespaces with this number.
CREATE FUNCTION scope_of_namespaces(p_number integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'namespaces/' || lpad(p_number::text, 2, '0')
$$;

-- Locks the logs of topics, in the order in which all transactions lock logs.
CREATE FUNCTION lock_logs(p_topics uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM log WHERE topic = ANY (p_topics) ORDER BY id FOR UPDATE;
END $$;

CREATE TABLE slot (
    number smallint PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('free', 'open', 'closed')),
    changed_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX slot_open ON slot (state) WHERE state = 'open';

CREATE TABLE run (
    slot smallint NOT NULL,
    log integer NOT NULL,
    base bigint NOT NULL,
    last bigint NOT NULL,
    -- Where the batches are: in inline_data of the same slot, in an object, or neither for references.
    inline bigint,
    object bigint,
    pos integer NOT NULL,
    size integer NOT NULL,
    max_time bigint NOT NULL,
    created_ms bigint NOT NULL,
    -- The value of the one record of a batch of references (records/references.py).
    refs bytea
) PARTITION BY LIST (slot);

CREATE TABLE inline_data (
    slot smallint NOT NULL,
    id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (slot, id)
) PARTITION BY LIST (slot);
CREATE SEQUENCE inline_id;

DO $$
BEGIN
    FOR number IN 0..15 LOOP
        EXECUTE format('CREATE TABLE run_%s PARTITION OF run FOR VALUES IN (%s)', number, number);
        EXECUTE format('CREATE UNIQUE INDEX run_%s_place ON run_%s (log, base)', number, number);
        EXECUTE format('CREATE TABLE inline_data_%s PARTITION OF inline_data FOR VALUES IN (%s)', number, number);
        -- Compression would cost time, and batches mostly are compressed; external values can be read in parts.
        EXECUTE format('ALTER TABLE inline_data_%s ALTER data SET STORAGE EXTERNAL', number);
        INSERT INTO slot (number, state) VALUES (number, CASE number WHEN 0 THEN 'open' ELSE 'free' END);
    END LOOP;
END $$;

CREATE TABLE object (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    size bigint NOT NULL,
    -- Segments that lie in it, and runs from their log's `segments_to` on.
    live integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Since when nothing in it is used.
    doomed_at timestamptz
);
CREATE INDEX object_doomed ON object (doomed_at) WHERE doomed_at IS NOT NULL;

-- Byte for byte a segment file (storage/files/segments), from `pos` on in its object.
CREATE TABLE segment (
    log integer NOT NULL,
    base bigint NOT NULL,
    last bigint NOT NULL,
    object bigint NOT NULL REFERENCES object,
    pos bigint NOT NULL,
    size bigint NOT NULL,
    max_time bigint NOT NULL,
    created_ms bigint NOT NULL,
    -- How often compaction has rewritten it.
    generation integer NOT NULL DEFAULT 0,
    -- Compacted up to this offset: below it no two records have the same key.
    clean_to bigint NOT NULL DEFAULT 0,
    -- The earliest time at which compaction may remove a tombstone or a marker here.
    horizon bigint NOT NULL DEFAULT 9223372036854775807,
    -- The sparse index, in the format of index files.
    index bytea NOT NULL,
    PRIMARY KEY (log, base)
);

-- Producer state by log (storage/producers.py); `batches` are triples: first sequence, last sequence, base offset.
CREATE TABLE producer (
    log integer NOT NULL,
    id bigint NOT NULL,
    epoch integer NOT NULL,
    batches bigint[] NOT NULL,
    last_time bigint NOT NULL,
    open_since bigint NOT NULL,
    PRIMARY KEY (log, id)
) WITH (fillfactor = 50);
-- The first open transaction of a log. A batch outside of transactions changes neither column, so that the update of
-- its producer stays within the page.
CREATE INDEX producer_open ON producer (log, open_since) WHERE open_since >= 0;

CREATE TABLE aborted (
    log integer NOT NULL,
    -- The offset of the marker.
    last bigint NOT NULL,
    first bigint NOT NULL,
    producer bigint NOT NULL,
    PRIMARY KEY (log, last)
);
-- Which of them reach into a range of offsets. Neither end alone bounds the search in a log with many. Numbers of a
-- point are exact up to 2^53.
CREATE INDEX aborted_range ON aborted USING gist (box(point(log, first), point(log, last)));

-- State of the broker: groups, offsets, queues, users. Keys may be longer than an index allows.
CREATE TABLE state (
    space smallint NOT NULL,
    key_hash bytea NOT NULL GENERATED ALWAYS AS (sha256(key)) STORED,
    owner bytea NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (space, key_hash)
) WITH (fillfactor = 70);

-- The number of the scope of groups or transactional ids that the state of an owner belongs to (model/scopes.py).
CREATE FUNCTION shard_of(owner bytea) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT get_byte(sha256(owner), 0) % 64
$$;
-- State is loaded by the shard or by the owner, whose name may be longer than an index allows, too.
CREATE INDEX state_shard ON state (space, shard_of(owner), sha256(owner));

-- The group whose offset an open transaction is about to change. The key is the size and the name of the transactional id,
-- a topic id, a partition number and the name of the group.
CREATE FUNCTION pending_group(key bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length(key) < 22 THEN ''::bytea
                ELSE substr(key, 23 + 256 * get_byte(key, 0) + get_byte(key, 1)) END
$$;
CREATE INDEX state_pending_group ON state (shard_of(pending_group(key))) WHERE space = 3;
-- The groups and share groups that read a topic: their keys begin with its id.
CREATE INDEX state_topic ON state (substr(key, 1, 16)) WHERE space IN (1, 13);

-- The last commit of each path of each broker, and its outcome, so that a commit whose answer was lost can be asked for.
CREATE TABLE committer (
    incarnation uuid NOT NULL,
    path smallint NOT NULL,
    number bigint NOT NULL DEFAULT 0,
    verdicts smallint[],
    bases bigint[],
    starts bigint[],
    details bigint[],
    first_opens bigint[],
    PRIMARY KEY (incarnation, path)
) WITH (fillfactor = 50);
