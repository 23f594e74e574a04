-- The cluster, its brokers, their leases, and the scopes that they hold.

CREATE TABLE cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id text NOT NULL,
    -- Brokers prove with it that they belong to the cluster when they connect to each other.
    secret bytea NOT NULL,
    -- How often an operator has confirmed that this database lost acknowledged commits, so that brokers go on with it.
    confirmed_losses integer NOT NULL DEFAULT 0,
    -- Why this database is known to have lost acknowledged commits, and since when; NULL once an operator has accepted
    -- it. No broker can take a lease or a scope meanwhile, also none that has just started and has seen nothing.
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
    seen_at timestamptz NOT NULL,
    -- An operator wants it to hold no scopes, also after it was started again.
    is_draining boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- A broker may serve until `until`, and commit for as long as its row is here: it may renew its lease late, as long as no
-- other broker has fenced it. `epoch` tells the leases of one broker from each other.
CREATE TABLE lease (
    holder uuid PRIMARY KEY,
    epoch bigint NOT NULL,
    until timestamptz NOT NULL,
    -- Of an import or an export: no broker can take a lease meanwhile.
    is_exclusive boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- Brokers that may commit, one row for each lease. Commits lock it, in the mode SHARE; to fence a broker is to remove it,
-- which waits for its commits in flight. The time of the lease has a row of its own: a renewal must not wait for a
-- commit.
CREATE TABLE writer (
    holder uuid PRIMARY KEY,
    epoch bigint NOT NULL
) WITH (fillfactor = 50);

-- The epoch of the newest lease, of all brokers. Its lock is held while a lease is taken, until that counts.
CREATE TABLE last_epoch (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

INSERT INTO last_epoch DEFAULT VALUES;

-- A scope is what one broker at a time does for all (model/scopes.py). It can be taken while it has no holder, or one
-- whose lease is over or gone. Taking it raises its epoch.
CREATE TABLE scope (
    name text PRIMARY KEY,
    holder uuid,
    epoch bigint NOT NULL DEFAULT 0,
    -- The broker that an operator wants to hold it.
    wanted integer REFERENCES broker ON UPDATE CASCADE
) WITH (fillfactor = 50);

INSERT INTO scope (name) VALUES ('coordinator');
INSERT INTO scope (name) SELECT 'groups/' || lpad(number::text, 2, '0') FROM generate_series(0, 63) AS number;
INSERT INTO scope (name) SELECT 'transactions/' || lpad(number::text, 2, '0') FROM generate_series(0, 63) AS number;
INSERT INTO scope (name) SELECT 'namespaces/' || lpad(number::text, 2, '0') FROM generate_series(0, 15) AS number;
INSERT INTO scope (name) SELECT 'housekeeping/' || lpad(number::text, 2, '0') FROM generate_series(0, 15) AS number;

-- Keeps the loss that a broker has recognised, unless an operator has accepted it since: `p_confirmed` is what the
-- broker knew of `confirmed_losses`.
CREATE FUNCTION record_loss(p_loss text, p_confirmed integer) RETURNS void LANGUAGE sql AS $$
    UPDATE cluster SET loss = p_loss, lost_at = clock_timestamp() WHERE loss IS NULL AND confirmed_losses <= p_confirmed
$$;

-- Why the database is known to have lost commits (a standby that was behind was promoted, a backup was restored); NULL
-- if it has not. That is compared here, because a heartbeat may come later than the takeover.
-- `p_seen` is what this broker saw last: the `epoch` of the scope coordinator, its `holder`, the number of that holder's
-- `commits`, the `own_commits` that were answered, and `commits_of` other brokers. A key that is absent says nothing.
CREATE FUNCTION find_loss(p_holder uuid, p_seen jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seen_epoch bigint := coalesce((p_seen ->> 'epoch')::bigint, 0);
    seen_holder uuid := (p_seen ->> 'holder')::uuid;
    seen_commits bigint := coalesce((p_seen ->> 'commits')::bigint, 0);
    seen_own bigint := coalesce((p_seen ->> 'own_commits')::bigint, 0);
    seen_confirmed integer := coalesce((p_seen ->> 'confirmed_losses')::integer, 0);
    now_held scope;
    commits bigint;
    own_commits bigint;
    lost text;
BEGIN
    SELECT loss INTO lost FROM cluster;
    IF lost IS NOT NULL OR EXISTS (SELECT FROM cluster WHERE confirmed_losses > seen_confirmed) THEN
        RETURN lost;
    END IF;
    SELECT * INTO now_held FROM scope WHERE name = 'coordinator';
    SELECT coalesce(sum(number), 0) INTO commits FROM committer WHERE incarnation = seen_holder;
    SELECT coalesce(sum(number), 0) INTO own_commits FROM committer WHERE incarnation = p_holder;
    IF now_held.epoch < seen_epoch THEN
        lost := format('the coordinator has epoch %s, and had %s', now_held.epoch, seen_epoch);
    ELSIF now_held.epoch = seen_epoch AND now_held.holder <> seen_holder THEN
        lost := format('the coordinator of epoch %s is another broker than before', now_held.epoch);
    ELSIF commits < seen_commits THEN
        lost := format('the coordinator''s last commit has number %s, and had %s', commits, seen_commits);
    ELSIF own_commits < seen_own THEN
        lost := format('a broker''s last commit has number %s, and had %s', own_commits, seen_own);
    ELSE
        SELECT format('a broker''s last commit has number %s, and had %s', found.number, seen.value) INTO lost
          FROM jsonb_each_text(coalesce(p_seen -> 'commits_of', '{}')) AS seen,
               LATERAL (SELECT coalesce(sum(own.number), 0) AS number FROM committer AS own
                         WHERE own.incarnation = seen.key::uuid) AS found
         WHERE found.number < seen.value::bigint LIMIT 1;
    END IF;
    IF lost IS NOT NULL THEN
        PERFORM record_loss(lost, seen_confirmed);
    END IF;
    RETURN lost;
END $$;

-- Later commits of this broker are refused, and its renewals. Waits for its commits in flight.
CREATE FUNCTION fence(p_holder uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM lease WHERE holder = p_holder;
    DELETE FROM writer WHERE holder = p_holder;
$$;

-- A new lease, in the place of one that this broker had before: the `epoch` of it, absent while an import or an export
-- keeps all brokers out, or the `loss` because of which no broker can take one. The broker holds no scopes.
-- clock_timestamp() and not now(): the statement may have waited for a row lock.
CREATE FUNCTION take_lease(p_holder uuid, p_seconds double precision, p_seen jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    new_epoch bigint;
    lost text;
BEGIN
    PERFORM 1 FROM scope WHERE holder = p_holder ORDER BY name FOR UPDATE;
    SELECT epoch + 1 INTO new_epoch FROM last_epoch FOR UPDATE;
    IF EXISTS (SELECT FROM lease WHERE is_exclusive AND holder <> p_holder AND until > clock_timestamp()) THEN
        RETURN '{}';
    END IF;
    lost := find_loss(p_holder, p_seen);
    IF lost IS NOT NULL THEN
        RETURN jsonb_build_object('loss', lost);
    END IF;
    UPDATE scope SET holder = NULL WHERE holder = p_holder;
    -- An export that has not renewed its lease must not go on beside brokers, and leases of brokers that died long ago
    -- must not gather.
    PERFORM fence(holder) FROM (
        SELECT holder FROM lease
         WHERE holder = p_holder OR is_exclusive OR until < clock_timestamp() - interval '1 day'
         ORDER BY holder FOR UPDATE
    ) AS ended;
    PERFORM begin_lease(p_holder, new_epoch, p_seconds, false);
    RETURN jsonb_build_object('epoch', new_epoch);
END $$;

-- The last step of taking a lease. The caller has locked last_epoch, and ended an earlier lease of the broker.
CREATE FUNCTION begin_lease(
    p_holder uuid, p_epoch bigint, p_seconds double precision, p_is_exclusive boolean
) RETURNS void LANGUAGE sql AS $$
    UPDATE last_epoch SET epoch = p_epoch;
    INSERT INTO lease (holder, epoch, until, is_exclusive)
    VALUES (p_holder, p_epoch, clock_timestamp() + make_interval(secs => p_seconds), p_is_exclusive);
    INSERT INTO writer (holder, epoch) VALUES (p_holder, p_epoch);
$$;

-- Whether the lease is still held in this epoch. It may be renewed after its time, as long as the broker was not fenced.
CREATE FUNCTION renew_lease(p_holder uuid, p_epoch bigint, p_seconds double precision) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE holder = p_holder AND epoch = p_epoch;
    RETURN FOUND;
END $$;

-- Others may take its scopes at once. Later commits of this epoch are refused.
CREATE FUNCTION release_lease(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM scope WHERE holder = p_holder ORDER BY name FOR UPDATE;
    PERFORM 1 FROM lease WHERE holder = p_holder AND epoch = p_epoch FOR UPDATE;
    IF FOUND THEN
        PERFORM fence(p_holder);
        UPDATE scope SET holder = NULL WHERE holder = p_holder;
    END IF;
END $$;

-- How long the lease of a broker lasts unless it is renewed; 0 if it is over or gone.
CREATE FUNCTION lease_seconds(p_holder uuid) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT coalesce(max(greatest(0, extract(epoch FROM until - clock_timestamp()))), 0)::float8
      FROM lease WHERE holder = p_holder AND until > '-infinity'
$$;

-- Takes scopes that are free or whose holder's lease is over, which fences that holder: it loses all its scopes, those
-- that are not named here, too. Also those that this broker holds already: it may have missed the answer to an earlier
-- call. Returns the epochs of those that were `taken`, or the `loss` because of which no broker can take any.
-- Raises PH001 if the lease of this broker is lost. `p_seen`: see find_loss.
CREATE FUNCTION take_scopes(p_holder uuid, p_epoch bigint, p_names text[], p_seen jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    lapsed uuid;
    lost text;
    taken jsonb;
BEGIN
    PERFORM 1 FROM scope WHERE name = ANY (p_names) ORDER BY name FOR UPDATE;
    PERFORM check_lease(p_holder, p_epoch);
    -- A broker that has not renewed its own lease in time may be fenced at any moment.
    IF NOT EXISTS (SELECT FROM lease WHERE holder = p_holder AND until > clock_timestamp()) THEN
        RETURN '{"taken": {}}';
    END IF;
    lost := find_loss(p_holder, p_seen);
    IF lost IS NOT NULL THEN
        RETURN jsonb_build_object('loss', lost);
    END IF;
    FOR lapsed IN
        SELECT DISTINCT holder FROM scope WHERE name = ANY (p_names) AND holder <> p_holder ORDER BY holder
    LOOP
        -- The lock waits for a renewal, and keeps the next one out.
        PERFORM 1 FROM lease WHERE holder = lapsed AND until <= clock_timestamp() FOR UPDATE;
        IF FOUND THEN
            PERFORM fence(lapsed);
        END IF;
    END LOOP;
    WITH changed AS (
        UPDATE scope SET holder = p_holder, epoch = epoch + 1
         WHERE name = ANY (p_names) AND (holder IS NULL OR holder = p_holder
               OR NOT EXISTS (SELECT FROM lease WHERE lease.holder = scope.holder))
        RETURNING name, epoch)
    SELECT coalesce(jsonb_object_agg(name, epoch), '{}') INTO taken FROM changed;
    RETURN jsonb_build_object('taken', taken);
END $$;

-- Others may take the scope at once. The broker has stopped using it. Waits for commits in flight that were checked
-- before; later ones that name the scope are refused. No-op if the broker does not hold it.
CREATE FUNCTION release_scope(p_holder uuid, p_epoch bigint, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM scope WHERE name = p_name AND holder = p_holder FOR UPDATE;
    IF FOUND THEN
        PERFORM 1 FROM writer WHERE holder = p_holder AND epoch = p_epoch FOR UPDATE;
        IF FOUND THEN
            UPDATE scope SET holder = NULL WHERE name = p_name;
        END IF;
    END IF;
END $$;

-- For an import or an export, which no broker may disturb: fences all brokers and takes all scopes. The epoch of its
-- lease.
CREATE FUNCTION take_everything(p_holder uuid, p_seconds double precision) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    new_epoch bigint;
BEGIN
    PERFORM 1 FROM scope ORDER BY name FOR UPDATE;
    SELECT epoch + 1 INTO new_epoch FROM last_epoch FOR UPDATE;
    PERFORM fence(holder) FROM (SELECT holder FROM lease ORDER BY holder FOR UPDATE) AS known;
    PERFORM begin_lease(p_holder, new_epoch, p_seconds, true);
    UPDATE scope SET holder = p_holder, epoch = epoch + 1;
    RETURN new_epoch;
END $$;

-- Raises PH001 unless the broker has the lease of this epoch, and the scopes. Keeps others from fencing it until the
-- transaction ends. That the holder of a scope is only read is enough: others take it after they have fenced the broker,
-- and the broker releases it after its commits.
CREATE FUNCTION check_lease(p_holder uuid, p_epoch bigint, p_scopes text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    PERFORM 1 FROM writer WHERE holder = p_holder AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease of epoch % is lost', p_epoch USING ERRCODE = 'PH001';
    ELSIF cardinality(p_scopes) > 0 THEN
        SELECT min(named.name) INTO missing FROM unnest(p_scopes) AS named (name)
         WHERE NOT EXISTS (SELECT FROM scope WHERE scope.name = named.name AND scope.holder = p_holder);
        IF missing IS NOT NULL THEN
            RAISE EXCEPTION 'the broker does not hold the scope %', missing USING ERRCODE = 'PH001';
        END IF;
    END IF;
END $$;

-- For what only the coordinator does.
CREATE FUNCTION check_coordinator(p_holder uuid, p_epoch bigint) RETURNS void LANGUAGE sql AS $$
    SELECT check_lease(p_holder, p_epoch, '{coordinator}')
$$;

-- An operator wants the broker to hold no scopes, or no longer wants that. Whether there is a broker of this name.
CREATE FUNCTION drain_broker(p_name text, p_is_draining boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE broker SET is_draining = p_is_draining WHERE name = p_name;
    RETURN FOUND;
END $$;

-- An operator wants the broker of this name to hold the scope; with NULL, any broker. Whether there are such ones.
CREATE FUNCTION want_scope(p_scope text, p_broker text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE scope SET wanted = (SELECT id FROM broker WHERE name = p_broker)
    WHERE name = p_scope AND (p_broker IS NULL OR EXISTS (SELECT FROM broker WHERE name = p_broker));
    RETURN FOUND;
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
