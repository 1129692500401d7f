"""The exact prompt behind an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from meshai.errors import UsageError
from meshai.operations.base import Operation, Report, chosen
from meshai.storage import calls
from meshai.storage.database import Database


class ReplayOperations:
    """``meshai replay``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def table(self) -> dict[str, Operation]:
        """Name → operation."""
        return {"replay": self.replay}

    async def replay(self, args: Mapping[str, Any], _report: Report) -> list[dict[str, object]]:
        """The calls behind the newest answer of a conversation, or behind the message with this id.

        Raises UsageError when there is none, or its prompt is no longer kept.
        """
        conversation = (await chosen(self._db, args.get("node")))[0]
        message_id = args.get("message")
        if message_id is not None:
            found = await calls.of_message(self._db, int(message_id))
            found = [call for call in found if call.conv_id == conversation.id]
        else:
            found = await calls.latest(self._db, conversation.id)
        if not found:
            raise UsageError(f"no model call is kept for that answer of {conversation.key}")
        return [asdict(call) for call in found]
