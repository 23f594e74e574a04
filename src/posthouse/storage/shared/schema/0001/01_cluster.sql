-- The cluster, its brokers, and the lease that says which of them writes.

CREATE TABLE cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id text NOT NULL,
    -- Brokers prove with it that they belong to the cluster when they connect to each other.
    secret bytea NOT NULL,
    -- How often an operator has confirmed that this database lost acknowledged commits, so that brokers go on with it.
    confirmed_losses integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE broker (
    -- The node id that Kafka clients see; it belongs to the name for ever.
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    -- One start of one process.
    incarnation uuid NOT NULL UNIQUE,
    -- Where clients and brokers reach it, by the name of the listener.
    addresses jsonb NOT NULL,
    rack text,
    version text NOT NULL,
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

-- The new epoch, NULL while another broker holds the lease. Waits for a commit in flight of the holder before.
-- clock_timestamp() and not now(): the update may have waited for a row lock.
CREATE FUNCTION take_lease(p_holder uuid, p_seconds double precision) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    UPDATE lease SET holder = p_holder, epoch = epoch + 1, until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE scope = 'all' AND until <= clock_timestamp() RETURNING epoch INTO taken;
    IF taken IS NOT NULL THEN
        UPDATE scope SET holder = p_holder, epoch = taken WHERE name = 'all';
    END IF;
    RETURN taken;
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

-- The node id of the broker of this name. A new start of a broker replaces the one before.
CREATE FUNCTION register_broker(p_name text, p_incarnation uuid, p_addresses jsonb, p_rack text, p_version text)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    number integer;
BEGIN
    UPDATE broker SET incarnation = p_incarnation, addresses = p_addresses, rack = p_rack, version = p_version,
        started_at = clock_timestamp(), seen_at = clock_timestamp()
    WHERE name = p_name RETURNING id INTO number;
    IF number IS NULL THEN
        INSERT INTO broker (name, incarnation, addresses, rack, version, started_at, seen_at)
        VALUES (p_name, p_incarnation, p_addresses, p_rack, p_version, clock_timestamp(), clock_timestamp())
        RETURNING id INTO number;
    END IF;
    RETURN number;
END $$;
