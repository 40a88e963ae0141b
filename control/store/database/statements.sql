-- The hot statements, by name, for SQLite and PostgreSQL. `{from MOVE}` becomes the guard of that move in
-- control.rules.job_states.MOVES; `{ms SECONDS}` whole milliseconds, cut off; `{kept}` until when a job that ends now is
-- kept; `{skip locked}` what keeps two writers from the same job, and `{share lock}` what keeps a session open until a
-- claim is stored, where there can be two writers. Parameters are `:named`.
-- Times are parameters; nothing here reads a clock. `node` is the holder of the current attempt: where it
-- does not match, the report is stale and no row changes.

-- name: insert_job
INSERT INTO jobs (id, account, endpoint, state, rank, not_before, created_at, expires_at, ttl_at, retention_s,
                  sync, low, urgent, execution_timeout_ms, max_attempts, handler_retries, webhook, own_bucket,
                  api_key, metered, traceparent, late_at, deadline)
VALUES (:id, :account, :endpoint, 'IN_QUEUE', :rank, :not_before, :created_at, :expires_at, :expires_at,
        :retention_s, :sync, :low, :urgent, :execution_timeout_ms, :max_attempts, :handler_retries, :webhook, :own_bucket,
        :api_key, :metered, :traceparent, :late_at, :deadline)
RETURNING seq

-- name: insert_input
INSERT INTO inputs (seq, body, ref_key, ref_size, ref_sha256, s3)
VALUES (:seq, :body, :ref_key, :ref_size, :ref_sha256, :s3)

-- name: claim
WITH next AS MATERIALIZED (
    SELECT seq FROM jobs
    WHERE EXISTS (SELECT 1 FROM nodes WHERE id = :node AND session = :session AND alive = 1 {share lock})
      AND endpoint = :endpoint AND {from claim} AND rank IN (0, 1, 2, 3)
      AND not_before <= :now AND expires_at > :now AND (late_at IS NULL OR late_at > :now)
    ORDER BY rank, not_before, seq LIMIT :free {skip locked}
)
UPDATE jobs
SET state = 'IN_PROGRESS', attempt = attempt + 1, failures = failures + suspect, suspect = 0, uploading = 0,
    node = :node, worker = :worker, claimed_at = :now, stream_attempt = NULL, held_from = NULL,
    began_anew = 0, late_at = deadline,
    delay_ms = {ms :now - created_at}
WHERE seq IN (SELECT seq FROM next)
RETURNING seq, id, attempt, refused, account, created_at, expires_at, execution_timeout_ms, api_key, traceparent

-- name: input
SELECT body, ref_key, ref_size, ref_sha256, s3 FROM inputs WHERE seq = :seq

-- name: finish
UPDATE jobs
SET state = :state, ended_at = :now, node = NULL, suspect = 0, uploading = 0, worker = :worker, reason = NULL,
    expires_at = {kept}, held_from = NULL,
    delay_ms = delay_ms + :wait_ms, execution_ms = :execution_ms
WHERE id = :job AND attempt = :attempt AND node = :node AND {from end}
RETURNING seq, account, endpoint, created_at, sync, refused, delay_ms, webhook, own_bucket, first_attempt,
    api_key, metered, stream_attempt, claimed_at, traceparent

-- name: insert_result
INSERT INTO results (seq, output, ref_key, ref_size, ref_sha256, error)
VALUES (:seq, :output, :ref_key, :ref_size, :ref_sha256, :error)

-- name: insert_span
INSERT INTO spans (job, attempt, kind, unit, account, endpoint, quantity, nano_usd, at)
VALUES (:job, :attempt, :kind, :unit, :account, :endpoint, :quantity, :nano_usd, :at)
ON CONFLICT DO NOTHING

-- name: insert_artifact
INSERT INTO artifacts (key, account, endpoint, job, size, sha256, media_type, expires_at)
VALUES (:key, :account, :endpoint, :job, :size, :sha256, :media_type, :expires_at)
ON CONFLICT DO NOTHING

-- name: count
INSERT INTO counters (account, endpoint, name, value) VALUES (:account, :endpoint, :name, :by)
ON CONFLICT (account, endpoint, name) DO UPDATE SET value = counters.value + excluded.value

-- name: insert_chunk
INSERT INTO chunks (seq, attempt, n, value, ref_key, ref_size, ref_sha256, stored_at)
SELECT seq, COALESCE(stream_attempt, attempt), :n, :value, :ref_key, CAST(:ref_size AS BIGINT), :ref_sha256, :now FROM jobs
WHERE id = :job AND attempt = :attempt AND node = :node AND {from end}
ON CONFLICT DO NOTHING

-- name: insert_log
INSERT INTO logs (seq, attempt, worker, text, first_line, times)
VALUES (:seq, :attempt, :worker, :text, :first_line, :times)
ON CONFLICT DO NOTHING

-- name: set_progress
INSERT INTO progress (seq, attempt, value)
SELECT seq, attempt, :value FROM jobs
WHERE id = :job AND attempt = :attempt AND node = :node AND {from end}
ON CONFLICT (seq) DO UPDATE SET attempt = excluded.attempt, value = excluded.value

-- name: set_uploading
UPDATE jobs SET uploading = 1, reason = :why,
    uploading_at = CASE WHEN uploading_at >= claimed_at THEN uploading_at ELSE :now END
WHERE id = :job AND attempt = :attempt AND node = :node AND {from end}

-- name: is_open
SELECT 1 FROM jobs WHERE id = :job AND attempt = :attempt AND node = :node AND {from end}

-- name: renew
UPDATE nodes SET seen_at = :now WHERE id = :node AND session = :session AND alive = 1

-- name: is_current
SELECT 1 FROM nodes WHERE id = :node AND session = :session AND alive = 1

-- name: add_node
INSERT INTO nodes (id, name, boot, session, alive, seen_at, opened_at, devices, facts)
VALUES (:node, :name, :boot, 0, 0, :now, :now, :devices, :facts)
ON CONFLICT (id) DO NOTHING

-- name: open_session
INSERT INTO nodes (id, name, boot, session, alive, seen_at, opened_at, devices, facts)
VALUES (:node, :name, :boot, 1, 1, :now, :now, :devices, :facts)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, boot = excluded.boot, session = nodes.session + 1,
    alive = excluded.alive, seen_at = excluded.seen_at, opened_at = excluded.opened_at,
    devices = excluded.devices, facts = excluded.facts
WHERE nodes.alive = 0 OR nodes.boot = excluded.boot OR :now - nodes.seen_at > :lease_s
RETURNING session

-- name: view
SELECT j.id, j.endpoint, j.state, j.created_at, j.sync, j.attempt, j.refused, j.worker, j.delay_ms,
       j.execution_ms, j.webhook, j.not_before,
       CASE WHEN j.state = 'IN_PROGRESS' AND j.uploading = 0 AND j.began_anew = 0 THEN NULL ELSE j.reason END,
       r.output, r.ref_key, r.ref_size, r.ref_sha256, r.error, p.value,
       COALESCE(j.stream_attempt, j.attempt)
FROM jobs j
LEFT JOIN results r ON r.seq = j.seq
LEFT JOIN progress p ON p.seq = j.seq AND p.attempt = j.attempt
WHERE j.id = :job AND j.account = :account AND j.endpoint = :endpoint AND j.expires_at > :now

-- name: chunks
SELECT c.attempt, c.n, c.value, c.ref_key, c.ref_size, c.ref_sha256
FROM jobs j JOIN chunks c ON c.seq = j.seq AND c.attempt = COALESCE(j.stream_attempt, j.attempt)
WHERE j.id = :job AND (j.held_from IS NULL OR c.n < j.held_from) AND (c.attempt > :attempt OR (c.attempt = :attempt AND c.n > :n))
ORDER BY c.n LIMIT :limit
