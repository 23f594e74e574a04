-- One call of commit_group is one group of commits: it checks the lease, the scopes and the commit's number, gives out
-- offsets, applies the rules for producers (storage/producers.py: a property test holds the two together), resolves
-- references, and writes runs, producers, aborted transactions and state. Either all of it counts or nothing.
--
-- It reads what it needs in two queries, decides in memory, batch by batch, and writes in a few statements for all.
--
-- Every broker of the cluster calls it, for any log, under its own lease. The call names the scopes that it needs. Without
-- any it appends to logs that feed no queues, batches outside of transactions and those that were admitted, and trims them;
-- housekeeping names its scope for that. With a scope of groups it writes their state. With a scope of
-- transactional ids it also appends batches that were not admitted and markers, and writes state of transactions. With a scope
-- of namespaces it appends to the logs of that scope, references among them, trims them, and writes the state of queues.
-- Batches of transactions may go to any log: queues refer to their records when the transaction is committed. For that,
-- the marker comes with a referral, which the holder of the scope of the log turns into references.
--
-- All transactions lock in one order, so that none waits for another in a circle: scopes by name, the last epoch, leases
-- and writers (of a broker first its lease; of several in the order of their holders), the own row of committer, logs by
-- id, state by space and key, and the number of the last change. Commits begin with the own row of writer. A renewal
-- locks nothing but its lease. A broker that takes scopes shares the lock of its own writer before it locks those of
-- brokers whose lease is over, whatever their order: its own is not over, so none of them waits for it.
-- State that is removed is locked after what is written, in any order. Two brokers meet there only if one removes
-- committed offsets of a group while a transaction commits some of it; PostgreSQL would end one of the two calls, which
-- is then repeated.

-- A producer of one log while a call decides; `epoch` is NULL for one that is not known.
CREATE TYPE producer_state AS (epoch integer, batches bigint[], open_since bigint, changed boolean);

-- Bytes of a signed varint (zigzag) of a size.
CREATE FUNCTION varint_size(value bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value < 64 THEN 1 WHEN value < 8192 THEN 2 WHEN value < 1048576 THEN 3
                WHEN value < 134217728 THEN 4 ELSE 5 END
$$;

-- Bytes of a batch of references (records/references.py) with a value of this size.
CREATE FUNCTION references_size(value bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 61 + varint_size(record) + record FROM (SELECT 5 + varint_size(value) + value AS record) AS encoded
$$;

-- Verdicts: 0 done, 1 duplicate (the base is that of the first copy), 2 the epoch is fenced, 3 out of sequence, 4 a new
-- epoch that does not begin with sequence 0, 5 void because another operation of the commit was refused, 6 the log
-- belongs to a scope of namespaces that the call does not name, 7 the log is deleted (6 and 7 also for trims), 8 the
-- batch of a transaction is not admitted. A marker with the verdict 6 voids its commit, required or not.
-- Details: the epoch that is known (2), or the sequence that was expected (3).
-- First opens: where the oldest open transaction of the log of each operation begins after this call; NULL if no log has
-- one.
--
-- `p_epoch` is that of the caller's lease, `p_scopes` are the names of the scopes that it must hold: raises PH001 if it
-- has lost one of them, PH006 if a commit needs a scope that is not named. `p_changed` are the spaces of
-- the state here that every broker keeps in memory.
--
-- Operations are parallel arrays, in order; `o_log` and `o_producer` are positions in the arrays of logs and producers
-- (0: no producer), `o_object` one in the arrays of objects (0: inline). Kinds: 0 append, 1 refer, 2 trim.
-- Flags: 1 required, 2 transactional, 4 control batch, 8 marker of a committed transaction, 16 a batch before it has
-- failed: it is refused if the log does not know its producer, 32 the marker comes with a referral. `o_offset` is the start to trim to (2), or the first
-- sequence of the batch that failed (16). `o_admission` is NULL, or has for batches of transactions that another broker
-- coordinates what must be stored as their admission (broker/transactions/admissions.py).
CREATE FUNCTION commit_group(
    p_holder uuid, p_epoch bigint, p_path smallint, p_number bigint, p_now bigint,
    p_scopes text[], p_payload bytea, p_objects text[], p_object_sizes bigint[],
    p_logs integer[], p_producer_logs integer[], p_producer_ids bigint[],
    o_commit integer[], o_kind smallint[], o_log integer[], o_count integer[], o_object integer[], o_pos integer[],
    o_size integer[], o_time bigint[], o_producer integer[], o_epoch integer[], o_first bigint[], o_last bigint[],
    o_flags integer[], o_offset bigint[], o_refs bytea[], o_admission bytea[],
    r_op integer[], r_append integer[], r_first bigint[], r_count integer[], r_expires bigint[],
    s_commit integer[], s_space smallint[], s_owner bytea[], s_key bytea[], s_value bytea[], p_changed smallint[],
    OUT verdicts smallint[], OUT bases bigint[], OUT starts bigint[], OUT details bigint[], OUT first_opens bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    coordinates boolean := 'coordinator' = ANY (p_scopes);
    transacts boolean := EXISTS (SELECT FROM unnest(p_scopes) AS name WHERE name LIKE 'transactions/%');
    -- Numbers of the scopes of namespaces that are named.
    named smallint[] := ARRAY(SELECT substr(name, 12)::smallint FROM unnest(p_scopes) AS name
                               WHERE name LIKE 'namespaces/%');
    allowed smallint[] := '{1, 5, 13, 14, 19, 33, 11, 12, 27, 28, 29}';
    known bigint;
    open_slot smallint;
    data bigint;
    objects bigint[];
    log_start bigint[];
    log_next bigint[];
    log_bytes bigint[];
    log_run integer[];
    log_trimmed boolean[];
    log_open bigint[];
    -- Whether a transaction may have begun or ended in it.
    log_transacted boolean[];
    -- Verdicts on appends to the logs, and trims; NULL if none of them refuses any.
    log_refusal smallint[];
    refuses boolean := false;
    -- Whether the batches are admitted; NULL if none needs an admission.
    admitted boolean[];
    producers producer_state[];
    producer producer_state;
    voided boolean[];
    ops integer := coalesce(cardinality(o_commit), 0);
    -- Runs, references and aborted transactions to insert.
    n integer := 0;
    n_log integer[] := '{}'; n_base bigint[] := '{}'; n_last bigint[] := '{}'; n_object integer[] := '{}';
    n_pos integer[] := '{}'; n_size integer[] := '{}'; n_time bigint[] := '{}'; n_refs bytea[] := '{}';
    a integer := 0;
    a_log integer[] := '{}'; a_last bigint[] := '{}'; a_first bigint[] := '{}'; a_producer bigint[] := '{}';
    i integer := 1;
    first_op integer;
    last_op integer;
    r integer := 1;
    l integer;
    k integer;
    run integer;
    verdict integer;
    base bigint;
    expected bigint;
    total bigint;
    earliest bigint;
    parts bytea[];
    refs bytea;
BEGIN
    PERFORM check_lease(p_holder, p_epoch, p_scopes);
    -- Spaces of groups (storage/spaces.py): OFFSETS, GROUPS, SHARE_GROUPS, SHARE_PROGRESS, STREAMS_GROUPS, GROUP_MEMBERS; of
    -- transactions: TRANSACTIONS, TRANSACTION_OFFSETS, FENCES, ADMISSIONS; of namespaces: EXCHANGES, BINDINGS, QUEUES,
    -- DELIVERY_LIMITS, and others whose keys do not name a namespace: QUEUE_PROGRESS, SCHEDULE, REFERRALS, SOURCES, DUE.
    IF NOT coordinates AND NOT s_space <@ allowed THEN
        IF transacts THEN
            allowed := allowed || '{2, 3, 7, 26}';
        END IF;
        IF cardinality(named) > 0 THEN
            allowed := allowed || '{8, 9, 10, 37}';
        END IF;
        IF NOT s_space <@ allowed THEN
            RAISE EXCEPTION 'this state is changed by the holder of another scope' USING ERRCODE = 'PH006';
        END IF;
    END IF;
    -- The slot may be closed before this call writes to it: see truncate_slot.
    SELECT own.number, slot.number INTO known, open_slot
      FROM committer AS own, slot
     WHERE own.incarnation = p_holder AND own.path = p_path AND slot.state = 'open' FOR UPDATE OF own;
    IF known IS NULL OR known >= p_number THEN
        RAISE EXCEPTION 'commit % of path % came too late', p_number, p_path USING ERRCODE = 'PH002';
    ELSIF known < p_number - 1 THEN
        RAISE EXCEPTION 'commit % of path % is missing', p_number - 1, p_path USING ERRCODE = 'PH002';
    END IF;

    verdicts := array_fill(0::smallint, ARRAY[ops]);
    bases := array_fill(-1::bigint, ARRAY[ops]);
    starts := array_fill(-1::bigint, ARRAY[ops]);
    details := array_fill(-1::bigint, ARRAY[ops]);

    -- Logs come in the order of their ids, which is the order in which all callers lock them.
    IF cardinality(p_logs) > 0 THEN
        SELECT array_agg(found.start ORDER BY found.id), array_agg(found.next ORDER BY found.id),
               array_agg(found.bytes ORDER BY found.id), array_agg(found.first_open ORDER BY found.id),
               coalesce(bool_or(found.deleted OR found.namespaces IS NOT NULL AND NOT found.namespaces = ANY (named)),
                        false)
          INTO log_start, log_next, log_bytes, log_open, refuses
          FROM (SELECT id, start, next, bytes, first_open, deleted, namespaces FROM log
                 WHERE id = ANY (p_logs) ORDER BY id FOR UPDATE) AS found;
        -- Seldom, and again in full: a log that is gone must not shift the others.
        IF refuses OR coalesce(cardinality(log_start), 0) <> cardinality(p_logs) THEN
            refuses := true;
            SELECT array_agg(coalesce(found.start, -1) ORDER BY wanted.place),
                   array_agg(found.next ORDER BY wanted.place), array_agg(found.bytes ORDER BY wanted.place),
                   array_agg(found.first_open ORDER BY wanted.place),
                   array_agg(CASE WHEN coalesce(found.deleted, true) THEN 7
                                  WHEN found.namespaces IS NOT NULL AND NOT found.namespaces = ANY (named) THEN 6
                                  ELSE 0 END ORDER BY wanted.place)
              INTO log_start, log_next, log_bytes, log_open, log_refusal
              FROM unnest(p_logs) WITH ORDINALITY AS wanted (id, place) LEFT JOIN log AS found USING (id);
            IF EXISTS (SELECT FROM unnest(o_kind, o_log) AS each (kind, log)
                        WHERE each.kind = 1 AND log_next[each.log] IS NULL) THEN
                RAISE EXCEPTION 'a log does not exist' USING ERRCODE = 'PH003';
            ELSIF EXISTS (SELECT FROM unnest(o_kind, o_log) AS each (kind, log)
                           WHERE each.kind = 1 AND log_refusal[each.log] = 6) THEN
                RAISE EXCEPTION 'references are written by the holder of their scope only' USING ERRCODE = 'PH006';
            END IF;
        END IF;
        log_run := array_fill(0, ARRAY[cardinality(p_logs)]);
        log_trimmed := array_fill(false, ARRAY[cardinality(p_logs)]);
        log_transacted := log_trimmed;
    END IF;
    IF cardinality(p_producer_ids) > 0 THEN
        SELECT array_agg(ROW(found.epoch, found.batches, found.open_since, false)::producer_state ORDER BY wanted.place)
          INTO producers
          FROM unnest(p_producer_logs, p_producer_ids) WITH ORDINALITY AS wanted (log, id, place)
          LEFT JOIN producer AS found ON found.log = wanted.log AND found.id = wanted.id;
    END IF;

    IF o_admission IS NOT NULL THEN
        -- The log is locked: a commit that ends the transaction came before, and has removed it, or comes after.
        SELECT array_agg(wanted.value IS NULL OR stored.value IS NOT DISTINCT FROM wanted.value ORDER BY wanted.place)
          INTO admitted
          FROM unnest(o_log, o_producer, o_admission) WITH ORDINALITY AS wanted (log, producer, value, place)
          LEFT JOIN log ON log.id = p_logs[wanted.log] AND wanted.value IS NOT NULL
          LEFT JOIN state AS stored ON stored.space = 26 AND stored.key_hash = sha256(
               uuid_send(log.topic) || int4send(log.partition) || int8send(p_producer_ids[wanted.producer]));
    END IF;

    WHILE i <= ops LOOP
        first_op := i;
        last_op := i;
        WHILE last_op < ops AND o_commit[last_op + 1] = o_commit[first_op] LOOP
            last_op := last_op + 1;
        END LOOP;

        -- First what is refused, because that may void the commit.
        FOR i IN first_op .. last_op LOOP
            IF NOT coordinates AND NOT transacts
                AND (o_flags[i] & 4 <> 0 OR o_flags[i] & 2 <> 0 AND o_admission[i] IS NULL) THEN
                RAISE EXCEPTION 'transactions are written by the holder of their scope' USING ERRCODE = 'PH006';
            END IF;
            verdict := 0;
            IF refuses AND o_kind[i] <> 1 THEN
                verdict := log_refusal[o_log[i]];
                IF verdict = 6 AND o_kind[i] = 0 AND o_flags[i] & 2 <> 0 AND o_flags[i] & 40 <> 8 THEN
                    verdict := 0;
                END IF;
            END IF;
            IF verdict = 0 AND NOT admitted[i] THEN
                verdict := 8;
            END IF;
            k := o_producer[i];
            IF k > 0 AND verdict = 0 THEN
                producer := producers[k];
                IF producer.epoch IS NULL THEN
                    IF o_flags[i] & 16 <> 0 THEN
                        verdict := 3;
                        details[i] := o_offset[i];
                    END IF;
                ELSIF o_epoch[i] < producer.epoch THEN
                    verdict := 2;
                    details[i] := producer.epoch;
                ELSIF o_flags[i] & 4 <> 0 THEN
                    NULL;  -- a marker has no sequence
                ELSIF o_epoch[i] > producer.epoch THEN
                    verdict := CASE WHEN o_first[i] = 0 THEN 0 ELSE 4 END;
                ELSE
                    verdict := -1;
                    FOR run IN 1 .. cardinality(producer.batches) / 3 LOOP
                        IF producer.batches[3 * run - 2] = o_first[i] AND producer.batches[3 * run - 1] = o_last[i] THEN
                            verdict := 1;
                            bases[i] := producer.batches[3 * run];
                            EXIT;
                        END IF;
                    END LOOP;
                    IF verdict < 0 THEN
                        expected := CASE WHEN cardinality(producer.batches) = 0 THEN 0
                            ELSE (producer.batches[cardinality(producer.batches) - 1] + 1) % 2147483648 END;
                        IF o_first[i] = expected THEN
                            verdict := 0;
                        ELSE
                            verdict := 3;
                            details[i] := expected;
                        END IF;
                    END IF;
                END IF;
            END IF;
            IF verdict > 0 THEN
                verdicts[i] := verdict;
                IF verdict >= 2 AND (o_flags[i] & 1 <> 0 OR verdict = 6 AND o_flags[i] & 4 <> 0) THEN
                    voided[o_commit[first_op]] := true;
                END IF;
            END IF;
        END LOOP;
        IF voided[o_commit[first_op]] THEN
            FOR i IN first_op .. last_op LOOP
                IF verdicts[i] < 2 THEN
                    verdicts[i] := 5;
                END IF;
                bases[i] := -1;
            END LOOP;
            WHILE r_op[r] <= last_op LOOP
                r := r + 1;
            END LOOP;
            i := last_op + 1;
            CONTINUE;
        END IF;

        FOR i IN first_op .. last_op LOOP
            l := o_log[i];
            IF o_kind[i] = 0 THEN
                IF verdicts[i] = 0 THEN
                    base := log_next[l];
                    bases[i] := base;
                    log_next[l] := base + o_count[i];
                    log_bytes[l] := log_bytes[l] + o_size[i];
                    run := log_run[l];
                    IF run > 0 AND n_refs[run] IS NULL AND n_object[run] = o_object[i]
                        AND n_pos[run] + n_size[run] = o_pos[i] THEN
                        n_last[run] := log_next[l] - 1;
                        n_size[run] := n_size[run] + o_size[i];
                        n_time[run] := greatest(n_time[run], o_time[i]);
                    ELSE
                        n := n + 1;
                        log_run[l] := n;
                        n_log[n] := p_logs[l]; n_base[n] := base; n_last[n] := log_next[l] - 1;
                        n_object[n] := o_object[i]; n_pos[n] := o_pos[i]; n_size[n] := o_size[i];
                        n_time[n] := o_time[i]; n_refs[n] := NULL;
                    END IF;
                    k := o_producer[i];
                    IF k > 0 THEN
                        producer := producers[k];
                        IF o_flags[i] & 6 <> 0 THEN
                            log_transacted[l] := true;
                        END IF;
                        IF o_flags[i] & 4 <> 0 THEN
                            IF o_flags[i] & 8 = 0 AND producer.open_since >= 0 THEN
                                a := a + 1;
                                a_log[a] := p_logs[l]; a_last[a] := base; a_first[a] := producer.open_since;
                                a_producer[a] := p_producer_ids[k];
                            END IF;
                            IF producer.epoch IS DISTINCT FROM o_epoch[i] THEN
                                producer.batches := '{}';
                            END IF;
                            producer.open_since := -1;
                        ELSE
                            producer.open_since := coalesce(producer.open_since, -1);
                            IF o_flags[i] & 2 <> 0 AND producer.open_since < 0 THEN
                                producer.open_since := base;
                            END IF;
                            IF producer.epoch IS DISTINCT FROM o_epoch[i] THEN
                                producer.batches := '{}';
                            ELSIF cardinality(producer.batches) >= 15 THEN
                                producer.batches := producer.batches[4:15];
                            END IF;
                            producer.batches := producer.batches || ARRAY[o_first[i], o_last[i], base];
                        END IF;
                        producer.epoch := o_epoch[i];
                        producer.changed := true;
                        producers[k] := producer;
                    END IF;
                END IF;
                starts[i] := log_start[l];
            ELSIF o_kind[i] = 1 THEN
                total := 0;
                earliest := NULL;
                parts := '{}';
                k := 0;
                WHILE r_op[r] = i LOOP
                    -- References to a batch that is a duplicate or refused (-1: before this call) are left out.
                    IF r_append[r] = 0 OR verdicts[r_append[r]] = 0 THEN
                        base := r_first[r] + CASE WHEN r_append[r] = 0 THEN 0 ELSE bases[r_append[r]] END;
                        parts := array_append(parts, overlay(substring(o_refs[i] FROM 48 * k + 1 FOR 48)
                                                             PLACING int8send(base) FROM 21 FOR 8));
                        total := total + r_count[r];
                        IF r_expires[r] <> 0 THEN
                            earliest := least(earliest, r_expires[r]);
                        END IF;
                    END IF;
                    k := k + 1;
                    r := r + 1;
                END LOOP;
                base := log_next[l];
                bases[i] := base;
                starts[i] := log_start[l];
                IF total > 0 THEN
                    SELECT string_agg(part, '' ORDER BY place) INTO refs
                      FROM unnest(parts) WITH ORDINALITY AS each (part, place);
                    n := n + 1;
                    log_run[l] := n;
                    log_next[l] := base + total;
                    n_log[n] := p_logs[l]; n_base[n] := base; n_last[n] := log_next[l] - 1; n_object[n] := 0;
                    n_pos[n] := 0; n_size[n] := references_size(length(refs)); n_time[n] := coalesce(earliest, -1);
                    n_refs[n] := refs;
                    log_bytes[l] := log_bytes[l] + n_size[n];
                ELSE
                    verdicts[i] := 1;
                END IF;
            ELSIF verdicts[i] <> 0 THEN
                starts[i] := log_start[l];
            ELSE
                base := greatest(log_start[l], least(o_offset[i], log_next[l]));
                IF base > log_start[l] THEN
                    -- An estimate, until housekeeping adds up what is left.
                    log_bytes[l] := div(log_bytes[l]::numeric * (log_next[l] - base), log_next[l] - log_start[l]);
                    log_start[l] := base;
                    log_trimmed[l] := true;
                END IF;
                bases[i] := base;
                starts[i] := base;
            END IF;
        END LOOP;
        i := last_op + 1;
    END LOOP;

    IF n > 0 THEN
        IF p_payload IS NOT NULL THEN
            data := nextval('inline_id');
            INSERT INTO inline_data (slot, id, data) VALUES (open_slot, data, p_payload);
        END IF;
        IF cardinality(p_objects) > 0 THEN
            WITH made AS (
                INSERT INTO object (key, size, live, doomed_at)
                SELECT each.key, each.size, used.runs, CASE used.runs WHEN 0 THEN now() END
                  FROM unnest(p_objects, p_object_sizes) WITH ORDINALITY AS each (key, size, place),
                       LATERAL (SELECT count(*)::integer AS runs FROM unnest(n_object) AS place
                                 WHERE place = each.place) AS used
                RETURNING id, key)
            SELECT array_agg(made.id ORDER BY each.place) INTO objects
              FROM unnest(p_objects) WITH ORDINALITY AS each (key, place) JOIN made USING (key);
        END IF;
        INSERT INTO run (slot, log, base, last, inline, object, pos, size, max_time, created_ms, refs)
        SELECT open_slot, new.log, new.base, new.last,
               CASE WHEN new.refs IS NULL AND new.object = 0 THEN data END,
               CASE WHEN new.object > 0 THEN objects[new.object] END,
               new.pos, new.size, new.max_time, p_now, new.refs
          FROM unnest(n_log, n_base, n_last, n_object, n_pos, n_size, n_time, n_refs)
               AS new (log, base, last, object, pos, size, max_time, refs);
    ELSIF cardinality(p_objects) > 0 THEN
        INSERT INTO object (key, size, live, doomed_at)
        SELECT each.key, each.size, 0, now() FROM unnest(p_objects, p_object_sizes) AS each (key, size);
    END IF;
    IF a > 0 THEN
        INSERT INTO aborted (log, last, first, producer)
        SELECT * FROM unnest(a_log, a_last, a_first, a_producer);
    END IF;
    IF cardinality(producers) > 0 THEN
        INSERT INTO producer (log, id, epoch, batches, last_time, open_since)
        SELECT p_producer_logs[new.place], p_producer_ids[new.place], new.epoch, new.batches, p_now, new.open_since
          FROM unnest(producers) WITH ORDINALITY AS new (epoch, batches, open_since, changed, place)
         WHERE new.changed
            ON CONFLICT (log, id) DO UPDATE SET epoch = excluded.epoch, batches = excluded.batches,
               last_time = excluded.last_time, open_since = excluded.open_since;
    END IF;
    IF true = ANY (log_transacted) THEN
        SELECT array_agg(CASE WHEN each.transacted THEN (
                   SELECT min(open.open_since) FROM producer AS open WHERE open.log = each.id AND open.open_since >= 0)
                   ELSE each.first_open END ORDER BY each.place)
          INTO log_open
          FROM unnest(p_logs, log_open, log_transacted) WITH ORDINALITY AS each (id, first_open, transacted, place);
    END IF;
    IF cardinality(p_logs) > 0 THEN
        UPDATE log SET start = new.start, next = new.next, bytes = new.bytes, first_open = new.first_open
          FROM unnest(p_logs, log_start, log_next, log_bytes, log_open) AS new (id, start, next, bytes, first_open)
         WHERE log.id = new.id AND (log.next, log.start) IS DISTINCT FROM (new.next, new.start);
        IF true = ANY (log_trimmed) THEN
            DELETE FROM aborted USING unnest(p_logs, log_start, log_trimmed) AS new (id, start, trimmed)
             WHERE aborted.log = new.id AND new.trimmed AND aborted.last < new.start;
        END IF;
        IF EXISTS (SELECT FROM unnest(log_open) AS place WHERE place IS NOT NULL) THEN
            SELECT array_agg(log_open[each.log] ORDER BY each.place) INTO first_opens
              FROM unnest(o_log) WITH ORDINALITY AS each (log, place);
        END IF;
    END IF;
    IF cardinality(s_commit) > 0 THEN
        -- The last value of a key counts.
        WITH put AS (
            SELECT DISTINCT ON (space, key) space, owner, key, value
              FROM unnest(s_commit, s_space, s_owner, s_key, s_value) WITH ORDINALITY
                   AS each (commit, space, owner, key, value, place)
             WHERE voided[commit] IS NOT TRUE
             ORDER BY space, key, place DESC),
        removed AS (
            DELETE FROM state USING put
             WHERE put.value IS NULL AND state.space = put.space AND state.key_hash = sha256(put.key))
        INSERT INTO state (space, owner, key, value)
        SELECT space, owner, key, value FROM put WHERE value IS NOT NULL ORDER BY space, key
            ON CONFLICT (space, key_hash) DO UPDATE SET value = excluded.value;
        IF cardinality(p_changed) > 0 THEN
            PERFORM note_change('{}', p_changed);
        END IF;
    END IF;
    UPDATE committer SET number = p_number, verdicts = commit_group.verdicts, bases = commit_group.bases,
           starts = commit_group.starts, details = commit_group.details, first_opens = commit_group.first_opens
     WHERE incarnation = p_holder AND path = p_path;
END $$;

-- Begins a path of a broker: the number that its next commit follows, and how many losses are confirmed. A call of the
-- same broker from before, which may still arrive, is refused by its number: its answer must not be taken for that of
-- another commit. Raises PH001 if the lease is lost, PH007 if the database is known to have lost commits, and PH005 for a
-- broker that does not coordinate if a coordinator has to come first.
-- `p_acknowledged` is the last commit of this path that was answered, `p_confirmed` what the broker knew then of
-- `confirmed_losses`. If the database has less, it has lost commits: it returns and keeps the `loss`, and begins nothing,
-- because new numbers would hide the lost ones.
CREATE FUNCTION open_commit_path(
    p_holder uuid, p_epoch bigint, p_coordinates boolean, p_path smallint, p_acknowledged bigint, p_confirmed integer,
    OUT number bigint, OUT confirmed_losses integer, OUT loss text
) LANGUAGE plpgsql AS $$
DECLARE
    lost text;
    known bigint;
BEGIN
    PERFORM check_lease(p_holder, p_epoch);
    SELECT cluster.loss INTO lost FROM cluster;
    IF lost IS NOT NULL THEN
        RAISE EXCEPTION '%', lost USING ERRCODE = 'PH007';
    ELSIF NOT p_coordinates AND EXISTS (SELECT FROM local_import WHERE awaits_coordinator) THEN
        RAISE EXCEPTION 'since the import of a data directory no coordinator has loaded it; others serve after that'
            USING ERRCODE = 'PH005';
    END IF;
    SELECT coalesce(max(cluster.confirmed_losses), 0) INTO open_commit_path.confirmed_losses FROM cluster;
    SELECT own.number INTO known FROM committer AS own WHERE own.incarnation = p_holder AND own.path = p_path FOR UPDATE;
    IF coalesce(known, 0) < p_acknowledged AND confirmed_losses <= p_confirmed THEN
        number := coalesce(known, 0);
        loss := format('commit %s of a broker was answered, and %s is the last that it knows', p_acknowledged, number);
        PERFORM record_loss(loss, p_confirmed);
        RETURN;
    END IF;
    INSERT INTO committer AS own (incarnation, path) VALUES (p_holder, p_path)
        ON CONFLICT (incarnation, path) DO UPDATE
           SET number = own.number + 1, verdicts = NULL, bases = NULL, starts = NULL, details = NULL,
               first_opens = NULL
        RETURNING own.number INTO open_commit_path.number;
END $$;

-- A number as ProducerIds stores it.
CREATE FUNCTION int8_of(value bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || encode(value, 'hex'))::bit(64)::bigint
$$;

-- Reserves producer ids (broker/transactions/producer_ids.py) for any broker: the first of `p_count` that none got before,
-- NULL if they do not all lie below `p_end`. It counts as a commit of the path, so that a database that has lost it is
-- recognised. Raises PH001 if the lease is lost, PH002 if the database has less than the last number that was answered.
CREATE FUNCTION reserve_producer_ids(
    p_holder uuid, p_epoch bigint, p_path smallint, p_acknowledged bigint, p_count bigint, p_end bigint,
    OUT first bigint, OUT number bigint
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_lease(p_holder, p_epoch);
    UPDATE committer AS own SET number = own.number + 1
     WHERE own.incarnation = p_holder AND own.path = p_path AND own.number >= p_acknowledged
    RETURNING own.number INTO reserve_producer_ids.number;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'commit % of path % is missing', p_acknowledged, p_path USING ERRCODE = 'PH002';
    END IF;
    INSERT INTO state AS known (space, owner, key, value) VALUES (4, '', 'next', int8send(p_count))
        ON CONFLICT (space, key_hash) DO UPDATE SET value = int8send(int8_of(known.value) + p_count)
           WHERE int8_of(known.value) + p_count <= p_end
    RETURNING int8_of(known.value) - p_count INTO first;
END $$;

-- What became of a commit whose answer was lost. The row lock waits for a call that still runs; a call that has not
-- arrived yet is refused by its number afterwards. `last` is the number of the last commit that counts or was retired:
-- if it is below what was acknowledged, or NULL, the database has lost commits.
CREATE FUNCTION resolve_commit(
    p_holder uuid, p_path smallint, p_number bigint,
    OUT last bigint, OUT counted boolean,
    OUT verdicts smallint[], OUT bases bigint[], OUT starts bigint[], OUT details bigint[], OUT first_opens bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    known committer;
BEGIN
    SELECT * INTO known FROM committer WHERE incarnation = p_holder AND path = p_path FOR UPDATE;
    last := known.number;
    counted := known.number = p_number AND known.verdicts IS NOT NULL;
    IF counted THEN
        verdicts := known.verdicts;
        bases := known.bases;
        starts := known.starts;
        details := known.details;
        first_opens := known.first_opens;
    -- Only if no commit is missing in between: such a gap must stay to be seen.
    ELSIF known.number = p_number - 1 THEN
        UPDATE committer SET number = p_number, verdicts = NULL, bases = NULL, starts = NULL, details = NULL,
               first_opens = NULL
         WHERE incarnation = p_holder AND path = p_path;
    END IF;
END $$;
