-- Schema version 3: tokens per day and the node they were spent for; "" for what belongs to nobody.
CREATE TABLE token_ledger (
    day TEXT NOT NULL,
    node_id TEXT NOT NULL,
    calls INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, node_id)
) STRICT;
