-- The cluster, its brokers, and the lease that says which of them writes.

CREATE TABLE cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id text NOT NULL,
    -- Brokers prove with it that they belong to the cluster when they connect to each other.
    secret bytea NOT NULL,
    -- How often an operator has confirmed that this database lost acknowledged commits, so that brokers go on with it.
    confirmed_losses integer NOT NULL DEFAULT 0,
    -- Why this database is known to have lost acknowledged commits, and since when; NULL once an operator has accepted
    -- it. No broker can take the lease meanwhile, also none that has just started and has seen nothing.
    loss text,
    lost_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE broker (
    -- The node id that Kafka clients see. It belongs to the name for ever, unless the broker is given another one.
    id integer PRIMARY KEY,
    name text NOT NULL UNIQUE,
    -- One start of one process.
    incarnation uuid NOT NULL UNIQUE,
    -- Where clients and brokers reach it, by the name of the listener.
    addresses jsonb NOT NULL,
    rack text,
    version text NOT NULL,
    -- The version of these tables that its release was made for.
    schema_version integer NOT NULL,
    -- It serves clients, and so can hold scopes.
    is_ready boolean NOT NULL DEFAULT false,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A scope is what one broker at a time may do. A takeover raises the epoch; every write names the epoch that it was
-- made under, so that a broker that does not know yet of its successor is refused (fencing).
CREATE TABLE scope (
    name text PRIMARY KEY,
    holder uuid,
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

INSERT INTO scope (name) VALUES ('all');

-- The time of the lease is in a row of its own: a renewal must not wait for the commit that has locked the scope.
CREATE TABLE lease (
    scope text PRIMARY KEY REFERENCES scope,
    holder uuid,
    epoch bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

INSERT INTO lease (scope) VALUES ('all');

-- Keeps the loss that a broker has recognised, unless an operator has accepted it since: `p_confirmed` is what the
-- broker knew of `confirmed_losses`.
CREATE FUNCTION record_loss(p_loss text, p_confirmed integer) RETURNS void LANGUAGE sql AS $$
    UPDATE cluster SET loss = p_loss, lost_at = clock_timestamp() WHERE loss IS NULL AND confirmed_losses <= p_confirmed
$$;

-- The new `epoch`, absent while another broker holds the lease, or the `loss` because of which none can take it.
-- `p_seen_…` is what this broker saw last: the epoch, its holder, and the number of that holder's commits.
-- `p_own_commits` are those of its own that were answered, `p_numbers` the commits of the brokers `p_incarnations`. If the database shows less, it has lost commits (a standby
-- that was behind was promoted, a backup was restored); that is compared here, because a heartbeat may come later than
-- the takeover.
-- Waits for a commit in flight of the holder before.
-- clock_timestamp() and not now(): the statement may have waited for a row lock.
CREATE FUNCTION take_lease(
    p_holder uuid, p_seconds double precision, p_seen_epoch bigint DEFAULT 0, p_seen_holder uuid DEFAULT NULL,
    p_seen_commits bigint DEFAULT 0, p_seen_confirmed integer DEFAULT 0, p_own_commits bigint DEFAULT 0,
    p_incarnations uuid[] DEFAULT '{}', p_numbers bigint[] DEFAULT '{}'
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    before lease;
    commits bigint;
    own_commits bigint;
    lost text;
BEGIN
    SELECT * INTO before FROM lease WHERE scope = 'all' AND until <= clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    SELECT loss INTO lost FROM cluster;
    IF lost IS NULL AND NOT EXISTS (SELECT FROM cluster WHERE confirmed_losses > p_seen_confirmed) THEN
        SELECT coalesce(sum(number), 0) INTO commits FROM committer WHERE incarnation = p_seen_holder;
        SELECT coalesce(sum(number), 0) INTO own_commits FROM committer WHERE incarnation = p_holder;
        IF before.epoch < p_seen_epoch THEN
            lost := format('the lease has epoch %s, and had %s', before.epoch, p_seen_epoch);
        ELSIF before.epoch = p_seen_epoch AND before.holder <> p_seen_holder THEN
            lost := format('the lease of epoch %s has another holder than before', before.epoch);
        ELSIF commits < p_seen_commits THEN
            lost := format('the holder''s last commit has number %s, and had %s', commits, p_seen_commits);
        ELSIF own_commits < p_own_commits THEN
            lost := format('a broker''s last commit has number %s, and had %s', own_commits, p_own_commits);
        ELSE
            SELECT format('a broker''s last commit has number %s, and had %s', found.number, seen.number) INTO lost
              FROM unnest(p_incarnations, p_numbers) AS seen (incarnation, number),
                   LATERAL (SELECT coalesce(sum(own.number), 0) AS number FROM committer AS own
                             WHERE own.incarnation = seen.incarnation) AS found
             WHERE found.number < seen.number LIMIT 1;
        END IF;
        IF lost IS NOT NULL THEN
            PERFORM record_loss(lost, p_seen_confirmed);
        END IF;
    END IF;
    IF lost IS NOT NULL THEN
        RETURN jsonb_build_object('loss', lost);
    END IF;
    UPDATE lease SET holder = p_holder, epoch = before.epoch + 1,
        until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE scope = 'all';
    UPDATE scope SET holder = p_holder, epoch = before.epoch + 1 WHERE name = 'all';
    RETURN jsonb_build_object('epoch', before.epoch + 1);
END $$;

-- Whether the lease is still held in this epoch. It may be renewed after its time, as long as it was not taken.
CREATE FUNCTION renew_lease(p_holder uuid, p_epoch bigint, p_seconds double precision) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE scope = 'all' AND holder = p_holder AND epoch = p_epoch;
    RETURN FOUND;
END $$;

-- Others may take the lease at once. Later commits of this epoch are refused.
CREATE FUNCTION release_lease(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET holder = NULL, until = '-infinity' WHERE scope = 'all' AND holder = p_holder AND epoch = p_epoch;
    IF FOUND THEN
        UPDATE scope SET holder = NULL WHERE name = 'all';
    END IF;
END $$;

-- Raises PH001 unless the lease is held in this epoch, and keeps others from taking it until the transaction ends.
CREATE FUNCTION check_lease(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM scope WHERE name = 'all' AND holder = p_holder AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease of epoch % is lost', p_epoch USING ERRCODE = 'PH001';
    END IF;
END $$;

-- Registers a start of the broker of this name, in the place of the one before. Its `id`: the one that it asks for, or the
-- one that it had, or the lowest that is free. Or the name of the broker that has this id (`taken_by`), or the version that
-- releases must know to use these tables (`needs`).
CREATE FUNCTION register_broker(
    p_name text, p_incarnation uuid, p_addresses jsonb, p_rack text, p_version text, p_schema_version integer,
    p_id integer DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    number integer;
    needs integer;
    other text;
BEGIN
    LOCK TABLE broker IN SHARE ROW EXCLUSIVE MODE;
    SELECT compatible_from INTO needs FROM schema_version ORDER BY schema_version.version DESC LIMIT 1;
    IF needs > p_schema_version THEN
        RETURN jsonb_build_object('needs', needs);
    END IF;
    SELECT name INTO other FROM broker WHERE id = p_id AND name <> p_name;
    IF FOUND THEN
        RETURN jsonb_build_object('taken_by', other);
    END IF;
    UPDATE broker SET id = coalesce(p_id, id), incarnation = p_incarnation, addresses = p_addresses, rack = p_rack,
        version = p_version, schema_version = p_schema_version, is_ready = false,
        started_at = clock_timestamp(), seen_at = clock_timestamp()
    WHERE name = p_name RETURNING id INTO number;
    IF number IS NULL THEN
        number := coalesce(p_id, (
            SELECT min(free) FROM generate_series(1, (SELECT count(*) + 1 FROM broker)) AS free
            WHERE NOT EXISTS (SELECT FROM broker WHERE id = free)));
        INSERT INTO broker (id, name, incarnation, addresses, rack, version, schema_version, started_at, seen_at)
        VALUES (number, p_name, p_incarnation, p_addresses, p_rack, p_version, p_schema_version,
                clock_timestamp(), clock_timestamp());
    END IF;
    RETURN jsonb_build_object('id', number);
END $$;
