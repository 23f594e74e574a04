-- What a broker tells the others each second, and what it hears of them: one round trip.

-- `is_registered` is false if another process has registered under the name of this broker, or if the database has
-- lost the registration. `holder` and `epoch` are those of the scope coordinator, `holders` has the holders of all scopes,
-- `wanted` the brokers that operators want to hold them. The commits are those of the coordinator, on all its paths,
-- those of the coordinator that this broker saw last, and those of this broker: like the epoch they never decrease
-- unless the database lost commits. `commits_of` are those of every registered broker and of `p_seen`, which are brokers
-- that were registered before. `needs` is the version that releases must know to use these tables.
CREATE FUNCTION heartbeat(
    p_incarnation uuid, p_live_seconds double precision, p_seen_holder uuid, p_seen uuid[] DEFAULT '{}',
    p_is_ready boolean DEFAULT false
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    registered boolean;
BEGIN
    UPDATE broker SET seen_at = clock_timestamp(), is_ready = p_is_ready WHERE incarnation = p_incarnation;
    registered := FOUND;
    RETURN (
        SELECT jsonb_build_object(
            'is_registered', registered,
            'needs', (SELECT compatible_from FROM schema_version ORDER BY version DESC LIMIT 1),
            'holder', coordinator.holder,
            'epoch', coordinator.epoch,
            'seconds_left', lease_seconds(coordinator.holder),
            'holders', (SELECT coalesce(jsonb_object_agg(name, holder) FILTER (WHERE holder IS NOT NULL), '{}')
                          FROM scope),
            'wanted', (SELECT coalesce(jsonb_object_agg(name, wanted) FILTER (WHERE wanted IS NOT NULL), '{}')
                         FROM scope),
            'commits', (SELECT coalesce(sum(number), 0) FROM committer WHERE incarnation = coordinator.holder),
            'seen_commits', CASE WHEN p_seen_holder IS NOT NULL THEN
                (SELECT coalesce(sum(number), 0) FROM committer WHERE incarnation = p_seen_holder) END,
            'own_commits', (SELECT coalesce(sum(number), 0) FROM committer WHERE incarnation = p_incarnation),
            'commits_of', (
                SELECT coalesce(jsonb_object_agg(known.incarnation, (
                    SELECT coalesce(sum(number), 0) FROM committer WHERE committer.incarnation = known.incarnation
                )), '{}')
                FROM (SELECT incarnation FROM broker UNION SELECT unnest(p_seen)) AS known (incarnation)
            ),
            'timeline', ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer,
            'confirmed_losses', (SELECT coalesce(max(confirmed_losses), 0) FROM cluster),
            'loss', (SELECT loss FROM cluster),
            'brokers', (
                SELECT coalesce(jsonb_agg(jsonb_build_object(
                    'id', id, 'name', name, 'incarnation', incarnation, 'addresses', addresses, 'rack', rack,
                    'version', version, 'seconds_since_start', extract(epoch FROM clock_timestamp() - started_at),
                    'is_ready', is_ready,
                    'lease_seconds_left', lease_seconds(incarnation), 'is_draining', is_draining
                ) ORDER BY id), '[]')
                FROM broker
                WHERE seen_at > clock_timestamp() - make_interval(secs => p_live_seconds)
            )
        )
        FROM scope AS coordinator WHERE name = 'coordinator'
    );
END $$;
