-- The cluster, its brokers, and the lease that says which of them writes.

CREATE TABLE cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id text NOT NULL,
    -- Brokers prove with it that they belong to the cluster when they connect to each other.
    secret bytea NOT NULL,
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
);

-- A scope is what one broker at a time may do. A takeover raises the epoch; every write names the epoch that it was
-- made under, so that a broker that does not know yet of its successor is refused (fencing).
CREATE TABLE scope (
    name text PRIMARY KEY,
    holder uuid,
    epoch bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

INSERT INTO scope (name) VALUES ('all');

-- Raises PH001 unless the lease is held in this epoch, and keeps others from taking it until the transaction ends.
CREATE FUNCTION check_lease(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM scope WHERE name = 'all' AND holder = p_holder AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease of epoch % is lost', p_epoch USING ERRCODE = 'PH001';
    END IF;
END $$;
