"""Running as a service: notify, log, lock, control socket."""
