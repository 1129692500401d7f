"""Fixtures of this folder."""

from support.inbox_world import clock, db, world

__all__ = ["clock", "db", "world"]
