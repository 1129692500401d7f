-- Schema version 1. Node ids are text "!%08x"; times are seconds since 1970 (REAL, UTC); keys are 32-byte blobs.
-- Order never comes from a time: a Pi has no clock. Sequence numbers and row ids give the order.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- What the bot knows of a node, whoever holds its key.
CREATE TABLE nodes (
    node_id TEXT PRIMARY KEY,
    long_name TEXT NOT NULL DEFAULT '',
    short_name TEXT NOT NULL DEFAULT '',
    first_heard REAL NOT NULL,
    last_heard REAL NOT NULL,
    hops INTEGER,
    snr REAL,
    rssi INTEGER,
    parts_sent INTEGER NOT NULL DEFAULT 0,
    parts_delivered INTEGER NOT NULL DEFAULT 0,
    parts_relayed INTEGER NOT NULL DEFAULT 0,
    parts_failed INTEGER NOT NULL DEFAULT 0,
    reply_acked INTEGER NOT NULL DEFAULT 0,      -- real ACKs for packets that carried a reply_id
    reply_unacked INTEGER NOT NULL DEFAULT 0,    -- packets with a reply_id that were only relayed or got nothing
    ignored_no_pki INTEGER NOT NULL DEFAULT 0,   -- DMs not answered for lack of PKI
    key_alarm_at REAL,                           -- an undecodable DM from a node with a pinned key
    favourite_at REAL
) STRICT;

-- They are counted whenever somebody new talks.
CREATE INDEX nodes_favourite ON nodes (favourite_at) WHERE favourite_at IS NOT NULL;

-- One conversation a person (a public key) or a channel; docs/memory.md §2.1.
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,                    -- dm:!a1b2c3d4, dm:!a1b2c3d4#<8 hex of the key's SHA-256>, ch:name
    kind TEXT NOT NULL CHECK (kind IN ('dm', 'channel')),
    node_id TEXT,
    memory_enabled INTEGER NOT NULL DEFAULT 1,
    compact_every INTEGER CHECK (compact_every BETWEEN 1 AND 500),
    epoch INTEGER NOT NULL DEFAULT 0,
    epoch_start_seq INTEGER NOT NULL DEFAULT 0,
    anchor_seq INTEGER NOT NULL DEFAULT 0,       -- first message that is still raw
    next_seq INTEGER NOT NULL DEFAULT 0,
    facts_upto_seq INTEGER NOT NULL DEFAULT 0,
    prefix_rev INTEGER NOT NULL DEFAULT 0,
    disclosed_at REAL,                           -- the first-contact line was sent
    closed_at REAL,                              -- archived for good: its key was replaced
    created_at REAL NOT NULL,
    last_active REAL NOT NULL
) STRICT;

-- A person is a public key (DESIGN §3 Identity).
CREATE TABLE identities (
    node_id TEXT NOT NULL,
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    conv_id INTEGER NOT NULL REFERENCES conversations (id),
    first_seen REAL NOT NULL,
    accepted_at REAL,
    revoked_at REAL,
    PRIMARY KEY (node_id, public_key)
) STRICT;

-- The archive: append-only, the only truth (docs/memory.md P1).
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    conv_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'notice')),
    sender TEXT NOT NULL DEFAULT '',
    sender_name TEXT NOT NULL DEFAULT '',
    content TEXT NOT NULL,
    created_at REAL NOT NULL,
    packet_id INTEGER,
    reply_to INTEGER REFERENCES messages (id) ON DELETE SET NULL,
    is_command INTEGER NOT NULL DEFAULT 0,
    tokens_est INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL DEFAULT 'final' CHECK (status IN ('final', 'undelivered', 'failed')),
    UNIQUE (conv_id, seq)
) STRICT;
CREATE INDEX messages_by_packet ON messages (sender, packet_id, created_at);

CREATE TABLE summaries (
    id INTEGER PRIMARY KEY,
    conv_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    level INTEGER NOT NULL DEFAULT 1,
    start_seq INTEGER NOT NULL,
    end_seq INTEGER NOT NULL,
    text TEXT NOT NULL DEFAULT '',
    base_id INTEGER REFERENCES summaries (id) ON DELETE SET NULL,      -- what it was made from
    replaces_id INTEGER REFERENCES summaries (id) ON DELETE SET NULL,  -- same range, better version
    parent_id INTEGER REFERENCES summaries (id) ON DELETE SET NULL,    -- merged into
    status TEXT NOT NULL CHECK (status IN ('processing', 'completed', 'failed', 'superseded')),
    quality TEXT NOT NULL DEFAULT 'llm' CHECK (quality IN ('llm', 'extractive', 'merged')),
    strategy TEXT NOT NULL DEFAULT '',
    version INTEGER NOT NULL DEFAULT 1,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL,
    lease_until REAL,
    boot_id TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    prompt_rev INTEGER NOT NULL DEFAULT 0,
    src_count INTEGER NOT NULL DEFAULT 0,
    src_tokens INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    retention REAL,
    generation_ms INTEGER,
    error TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    completed_at REAL,
    CHECK (end_seq >= start_seq),
    CHECK (status <> 'completed' OR text <> '')                         -- S1-12
) STRICT;
CREATE UNIQUE INDEX summaries_single_flight ON summaries (conv_id) WHERE status = 'processing';
CREATE UNIQUE INDEX summaries_active_range ON summaries (conv_id, epoch, start_seq)
    WHERE status = 'completed' AND parent_id IS NULL;
CREATE INDEX summaries_by_status ON summaries (conv_id, status, end_seq DESC);

CREATE TABLE facts (
    id INTEGER PRIMARY KEY,
    conv_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL DEFAULT 0,
    subject TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL CHECK (kind IN ('preference', 'decision', 'fact', 'url', 'entity', 'structure', 'custom')),
    key TEXT NOT NULL DEFAULT '',
    value TEXT NOT NULL,
    quote TEXT NOT NULL DEFAULT '',
    source_msg_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    origin TEXT NOT NULL CHECK (origin IN ('regex', 'llm', 'user')),
    pinned INTEGER NOT NULL DEFAULT 0,
    valid_from REAL NOT NULL,
    invalid_at REAL,
    superseded_by INTEGER REFERENCES facts (id) ON DELETE SET NULL,
    hash TEXT NOT NULL,
    last_used REAL,
    created_at REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX facts_active ON facts (conv_id, hash) WHERE invalid_at IS NULL;

-- A question: received → answering → answered | ignored | expired (DESIGN §3).
CREATE TABLE inbound (
    id INTEGER PRIMARY KEY,
    node_id TEXT NOT NULL,
    packet_id INTEGER NOT NULL,
    public_key BLOB,
    conv_id INTEGER REFERENCES conversations (id) ON DELETE SET NULL,
    channel_index INTEGER,                       -- NULL: a direct message
    content TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'chat' CHECK (kind IN ('chat', 'command', 'tapback', 'other')),
    state TEXT NOT NULL DEFAULT 'received'
        CHECK (state IN ('received', 'answering', 'answered', 'ignored', 'expired')),
    reason TEXT NOT NULL DEFAULT '',
    reply_id INTEGER,
    hops INTEGER,
    snr REAL,
    rssi INTEGER,
    rx_time REAL,
    message_id INTEGER REFERENCES messages (id) ON DELETE SET NULL,
    answer_id INTEGER,
    received_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX inbound_duplicates ON inbound (node_id, packet_id, received_at);
CREATE INDEX inbound_open ON inbound (state, id) WHERE state IN ('received', 'answering');

-- An answer as a whole; its packets are in outbound.
CREATE TABLE answers (
    id INTEGER PRIMARY KEY,
    inbound_id INTEGER REFERENCES inbound (id) ON DELETE SET NULL,
    conv_id INTEGER REFERENCES conversations (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL,
    public_key BLOB,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'command', 'notice', 'more', 'tapback')),
    text TEXT NOT NULL DEFAULT '',               -- what is in parts
    rest TEXT NOT NULL DEFAULT '',               -- what waits for !more
    truncated INTEGER NOT NULL DEFAULT 0,        -- the model ran into its token limit: !more asks it to go on
    complete INTEGER NOT NULL DEFAULT 1,         -- 0 while the text is still being written
    message_id INTEGER REFERENCES messages (id) ON DELETE SET NULL,
    asked_at REAL,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX answers_by_node ON answers (node_id, id);
CREATE INDEX answers_open ON answers (id) WHERE complete = 0;

-- A packet: queued → sent → relayed → delivered, or failed, expired, held (DESIGN §3).
CREATE TABLE outbound (
    id INTEGER PRIMARY KEY,
    answer_id INTEGER NOT NULL REFERENCES answers (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL,
    public_key BLOB,
    channel_index INTEGER,                       -- NULL: a direct message
    packet_id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    total INTEGER NOT NULL,                      -- 0 while the answer is still being written
    reply_id INTEGER,
    content TEXT NOT NULL,
    text_from INTEGER NOT NULL DEFAULT 0,        -- where its text begins in answers.text: held parts are cut again
    state TEXT NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'sent', 'relayed', 'delivered', 'failed', 'expired', 'held')),
    priority INTEGER NOT NULL DEFAULT 1,         -- 0 command reply, 1 answer, 2 held answer, 3 tapback
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    hop_limit INTEGER,
    airtime_ms INTEGER NOT NULL DEFAULT 0,
    not_before REAL,
    expires_at REAL NOT NULL,
    created_at REAL NOT NULL,
    sent_at REAL,
    settled_at REAL                              -- NULL: something may still happen to it
) STRICT;
CREATE INDEX outbound_open ON outbound (state, priority, id) WHERE settled_at IS NULL;
CREATE INDEX outbound_by_packet ON outbound (packet_id);
CREATE INDEX outbound_by_node ON outbound (node_id, id);
CREATE INDEX outbound_by_answer ON outbound (answer_id, part);
CREATE INDEX outbound_by_time ON outbound (sent_at) WHERE sent_at IS NOT NULL;

CREATE TABLE llm_calls (
    id INTEGER PRIMARY KEY,
    conv_id INTEGER REFERENCES conversations (id) ON DELETE SET NULL,
    inbound_id INTEGER REFERENCES inbound (id) ON DELETE SET NULL,
    purpose TEXT NOT NULL,
    endpoint TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    prompt_est INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    first_token_ms INTEGER NOT NULL DEFAULT 0,
    ms INTEGER NOT NULL DEFAULT 0,
    prefix_sha TEXT NOT NULL DEFAULT '',
    outcome TEXT NOT NULL,
    prompt BLOB,                                 -- zlib of the JSON messages, the last 1 000 answers only
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX llm_calls_by_inbound ON llm_calls (inbound_id) WHERE inbound_id IS NOT NULL;

CREATE TABLE token_calibration (
    model TEXT PRIMARY KEY,
    bytes_per_token REAL NOT NULL DEFAULT 0,
    overhead REAL NOT NULL DEFAULT 0,
    ratio_mean REAL NOT NULL DEFAULT 1,
    ratio_var REAL NOT NULL DEFAULT 0,
    n INTEGER NOT NULL DEFAULT 0,
    n_ctx INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL
) STRICT;

-- Own time on air per day and the node it was spent for.
CREATE TABLE airtime_ledger (
    day TEXT NOT NULL,
    node_id TEXT NOT NULL,
    packets INTEGER NOT NULL DEFAULT 0,
    airtime_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, node_id)
) STRICT;

-- One notice per state and hour: when a person was last told something of a kind.
CREATE TABLE notices (
    node_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    last_at REAL NOT NULL,
    PRIMARY KEY (node_id, kind)
) STRICT;

-- Nodes silenced at run time: by an admin, or by the loop breaker until a time.
CREATE TABLE blocks (
    node_id TEXT PRIMARY KEY,
    until REAL,                                  -- NULL: for good
    reason TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL
) STRICT;

-- Full-text search. The views have exactly the columns of the index: rebuild and snippet need the names to match.
-- Scripts without spaces (Thai to Khmer, Kana, Han, Hangul) are indexed letter by letter, so that a phrase of letters finds
-- a word; the date is tokens of its own ("2023 m05 d08"), so that a number in the text is no month.
CREATE VIEW messages_fts_source AS
    SELECT id,
        CASE WHEN content GLOB '*[฀-໿က-႟ក-៿぀-ヿ㐀-䶿一-鿿가-힣豈-﫿𠀀-𱍏]*' THEN (
            WITH RECURSIVE letters (at, letter) AS (
                SELECT 1, substr(content, 1, 1)
                UNION ALL
                SELECT at + 1, substr(content, at + 1, 1) FROM letters WHERE at < length(content)
            )
            SELECT group_concat(
                CASE WHEN letter GLOB '[฀-໿က-႟ក-៿぀-ヿ㐀-䶿一-鿿가-힣豈-﫿𠀀-𱍏]' THEN ' ' || letter || ' ' ELSE letter END, ''
            ) FROM letters
        ) ELSE content END AS content,
        strftime('%Y m%m d%d', created_at, 'unixepoch') AS date,
        'c' || conv_id || 'e' || epoch AS scope
    FROM messages WHERE role <> 'notice' AND is_command = 0;
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    content, date, scope, content = 'messages_fts_source', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
-- How many messages hold a word, for choosing the rare ones first; it has no content of its own.
CREATE VIRTUAL TABLE messages_words USING fts5vocab (messages_fts, 'row');
CREATE INDEX messages_by_name ON messages (conv_id, epoch, sender_name);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages WHEN new.role <> 'notice' AND new.is_command = 0 BEGIN
    INSERT INTO messages_fts (rowid, content, date, scope)
        SELECT id, content, date, scope FROM messages_fts_source WHERE id = new.id;
END;
CREATE TRIGGER messages_fts_delete BEFORE DELETE ON messages WHEN old.role <> 'notice' AND old.is_command = 0 BEGIN
    INSERT INTO messages_fts (messages_fts, rowid, content, date, scope)
        SELECT 'delete', id, content, date, scope FROM messages_fts_source WHERE id = old.id;
END;

CREATE VIEW facts_fts_source AS
    SELECT id, key || ' ' || value || ' ' || quote AS content, '' AS date, 'c' || conv_id AS scope FROM facts;
CREATE VIRTUAL TABLE facts_fts USING fts5 (
    content, date, scope, content = 'facts_fts_source', content_rowid = 'id', tokenize = 'porter unicode61'
);
CREATE TRIGGER facts_fts_insert AFTER INSERT ON facts BEGIN
    INSERT INTO facts_fts (rowid, content, date, scope)
        SELECT id, content, date, scope FROM facts_fts_source WHERE id = new.id;
END;
CREATE TRIGGER facts_fts_delete BEFORE DELETE ON facts BEGIN
    INSERT INTO facts_fts (facts_fts, rowid, content, date, scope)
        SELECT 'delete', id, content, date, scope FROM facts_fts_source WHERE id = old.id;
END;

CREATE VIRTUAL TABLE knowledge_fts USING fts5 (
    title, content, path UNINDEXED, digest UNINDEXED, tokenize = 'porter unicode61'
);
