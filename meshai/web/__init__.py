"""The operator's page: what the daemon knows, and the few switches an operator needs (extra ``web``)."""
