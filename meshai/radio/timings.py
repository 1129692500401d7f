"""The link's deadlines in one place, so that tests can shrink them together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds unless the name says otherwise. Sources: DESIGN §3 Watchdog, protocol.md §3.6 and §5."""

    connect_s: float = 10.0  # TCP connection attempt
    silence_s: float = 10.0  # handshake: no frame for so long, and it is abandoned
    handshake_s: float = 120.0  # handshake in all: 250 nodes over a slow port need tens of seconds
    probe_every_s: float = 30.0  # heartbeat to the node
    probe_answer_s: float = 10.0  # … which it answers with a queueStatus (firmware >= 2.7.4)
    probe_failures: int = 2  # so many unanswered heartbeats in a row, and the interface is rebuilt
    frame_within_s: float = 180.0  # older firmware: own telemetry comes each minute
    pause_s: float = 0.1  # after the wake-up bytes, and after each write to a serial port
    write_s: float = 5.0  # one write to the port
    room_s: float = 8.0  # waiting for room in the node's transmit queue
    call_s: float = 20.0  # any call into the library; then its thread is abandoned
    close_s: float = 5.0  # close(), in a throw-away thread
    orphans: int = 3  # more threads than this that do not end: STUCK
    backoff_min_s: float = 1.0
    backoff_max_s: float = 30.0
    brief_s: float = 10.0  # a connection lost sooner than this after its handshake was brief
    brief_times: int = 3  # so many brief ones in a row: two programs fight, or the node reboots in a loop
    steady_s: float = 60.0  # a connection that stood so long resets the backoff and the log's memory
    log_again_s: float = 600.0  # the same complaint again
    backlog_quiet_s: float = 2.0  # the burst after a connect ends with so much quiet
    backlog_max_s: float = 10.0  # … or after so long in all
    linger_s: float = 10.0  # stop(): the last packet may still wait its turn in a serial node (protocol.md §8)
    admin_gap_s: float = 1.0  # admin packets back to back are dropped (protocol.md §9.11)
    clock_every_s: float = 86400.0  # the node's clock is set again
    clock_off_s: float = 5.0  # … and whenever ours jumped by more
    hopeless_times: int = 10  # handshakes failed in a row, over at least …
    hopeless_s: float = 900.0  # … so long: only a restart is left to try
    slack_s: float = 30.0  # the supervisor may be late by so much before it counts as hanging
