-- Schema version 2: an answer may grow, searching facts by epoch, and the source designs' tables as read-only views.

-- `!more` lets a cut answer go on in the same message: the index follows.
CREATE TRIGGER messages_fts_before_update BEFORE UPDATE OF content ON messages
    WHEN old.role <> 'notice' AND old.is_command = 0 BEGIN
    INSERT INTO messages_fts (messages_fts, rowid, content, date, scope)
        SELECT 'delete', id, content, date, scope FROM messages_fts_source WHERE id = old.id;
END;
CREATE TRIGGER messages_fts_after_update AFTER UPDATE OF content ON messages
    WHEN new.role <> 'notice' AND new.is_command = 0 BEGIN
    INSERT INTO messages_fts (rowid, content, date, scope)
        SELECT id, content, date, scope FROM messages_fts_source WHERE id = new.id;
END;

CREATE INDEX facts_by_conversation ON facts (conv_id, epoch, invalid_at);
CREATE INDEX summaries_by_parent ON summaries (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX llm_calls_by_conversation ON llm_calls (conv_id, id);

-- What is known of a person now: facts go with their epoch, what was asked to be remembered stays (DESIGN §4.3).
CREATE VIEW current_facts AS
    SELECT f.* FROM facts f JOIN conversations c ON c.id = f.conv_id
    WHERE f.invalid_at IS NULL AND (f.origin = 'user' OR f.epoch = c.epoch);

-- S0: one row a person, the newest summary.
CREATE VIEW conversation_summaries AS
    SELECT coalesce(c.node_id, c.key) AS user_id, s.text AS summary,
        (SELECT count(*) FROM messages m WHERE m.conv_id = c.id AND m.epoch = c.epoch AND m.role <> 'notice'
            AND m.is_command = 0 AND m.seq < c.anchor_seq) AS message_count,
        s.completed_at AS updated_at
    FROM conversations c
    JOIN summaries s ON s.id = (
        SELECT id FROM summaries n WHERE n.conv_id = c.id AND n.epoch = c.epoch AND n.status = 'completed'
            AND n.parent_id IS NULL ORDER BY n.end_seq DESC, n.id DESC LIMIT 1
    );

-- S1: every version. A version that another one replaced stays 'completed' there, as in the source.
CREATE VIEW memory AS
    SELECT s.id AS memory_id, c.key AS conversation_id, s.text AS memory_text, s.start_seq AS start_sequence,
        s.end_seq AS end_sequence, s.base_id AS base_memory_id,
        CASE WHEN s.status = 'superseded' THEN iif(s.completed_at IS NULL OR s.error <> '', 'failed', 'completed')
            ELSE s.status END AS status,
        datetime(s.created_at, 'unixepoch') AS created_at, s.generation_ms AS generation_time_ms
    FROM summaries s JOIN conversations c ON c.id = s.conv_id;

-- S3: a person's settings; where NULL the configuration's value holds.
CREATE VIEW users AS
    SELECT coalesce(node_id, key) AS user_id, 'sqlite' AS storage_type, coalesce(compact_every, 10) AS summary_every_n,
        memory_enabled, datetime(created_at, 'unixepoch') AS created_at, datetime(last_active, 'unixepoch') AS updated_at
    FROM conversations;

-- S3 (and S0's history): messages with is_active and chunk_id. One truth: active means not before the anchor.
CREATE VIEW message_archive AS
    SELECT m.id, coalesce(c.node_id, c.key) AS user_id, m.role, m.content,
        datetime(m.created_at, 'unixepoch') AS created_at, m.created_at AS timestamp,
        m.epoch = c.epoch AND m.seq >= c.anchor_seq AS is_active,
        (SELECT s.id FROM summaries s WHERE s.conv_id = m.conv_id AND s.epoch = m.epoch AND s.level = 1
            AND s.status = 'completed' AND m.seq BETWEEN s.start_seq AND s.end_seq ORDER BY s.id DESC LIMIT 1) AS chunk_id,
        c.key AS conversation_id, m.seq AS sequence_number, m.epoch
    FROM messages m JOIN conversations c ON c.id = m.conv_id
    WHERE m.role <> 'notice' AND m.is_command = 0;

-- S3: the summaries with their levels; active ones stand in the prompt.
CREATE VIEW summary_archive AS
    SELECT s.id, coalesce(c.node_id, c.key) AS user_id, s.text AS summary_text,
        datetime(s.completed_at, 'unixepoch') AS created_at, s.level,
        CASE WHEN s.level = 1 THEN json_array(s.id)
            ELSE (SELECT json_group_array(k.id) FROM summaries k WHERE k.parent_id = s.id) END AS source_chunk_ids,
        s.status = 'completed' AND s.parent_id IS NULL AND s.epoch = c.epoch AS is_active
    FROM summaries s JOIN conversations c ON c.id = s.conv_id
    WHERE s.completed_at IS NOT NULL;

-- S4: memory_compression, one JSON value a session.
CREATE VIEW memory_compression AS
    SELECT coalesce(c.node_id, c.key) AS session_id, json_object(
        'important_data', json_object(
            'user_preferences', (SELECT json_group_object(coalesce(nullif(f.key, ''), f.id), f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'preference'),
            'key_decisions', (SELECT json_group_array(f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'decision'),
            'important_facts', (SELECT json_group_array(f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'fact'),
            'source_urls', (SELECT json_group_array(f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'url'),
            'document_structure', (SELECT json_group_object(coalesce(nullif(f.key, ''), f.id), f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'structure'),
            'entities', (SELECT json_group_array(f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'entity'),
            'custom_fields', (SELECT json_group_object(coalesce(nullif(f.key, ''), f.id), f.value) FROM current_facts f
                WHERE f.conv_id = c.id AND f.kind = 'custom')
        ),
        'conversation_summary', coalesce((SELECT group_concat(t.text, ' ') FROM (
            SELECT s.text FROM summaries s WHERE s.conv_id = c.id AND s.epoch = c.epoch AND s.status = 'completed'
                AND s.parent_id IS NULL ORDER BY s.start_seq) t), ''),
        'summary_version', coalesce((SELECT max(s.version) FROM summaries s WHERE s.conv_id = c.id
            AND s.epoch = c.epoch AND s.status = 'completed' AND s.parent_id IS NULL), 0),
        'last_summarized_at', (SELECT strftime('%Y-%m-%dT%H:%M:%SZ', max(s.completed_at), 'unixepoch') FROM summaries s
            WHERE s.conv_id = c.id AND s.epoch = c.epoch AND s.status = 'completed'),
        'messages_summarized_count', (SELECT count(*) FROM messages m WHERE m.conv_id = c.id AND m.epoch = c.epoch
            AND m.role <> 'notice' AND m.is_command = 0 AND m.seq < c.anchor_seq),
        'last_keep_window_index', (SELECT count(*) FROM messages m WHERE m.conv_id = c.id AND m.epoch = c.epoch
            AND m.role <> 'notice' AND m.is_command = 0 AND m.seq < c.anchor_seq)
    ) AS memory_compression
    FROM conversations c;

-- Deleting a person's messages must not scan every table that points at them.
CREATE INDEX messages_by_reply ON messages (reply_to) WHERE reply_to IS NOT NULL;
CREATE INDEX inbound_by_message ON inbound (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX inbound_by_conversation ON inbound (conv_id) WHERE conv_id IS NOT NULL;
CREATE INDEX answers_by_message ON answers (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX answers_by_conversation ON answers (conv_id) WHERE conv_id IS NOT NULL;
CREATE INDEX facts_by_source ON facts (source_msg_id);
CREATE INDEX facts_by_successor ON facts (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX summaries_by_base ON summaries (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX summaries_by_replaced ON summaries (replaces_id) WHERE replaces_id IS NOT NULL;
