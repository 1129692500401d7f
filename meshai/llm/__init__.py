"""The language model: client, failover, offline answerer, scripted server. Heavy imports are late."""
