"""Texts that no table knows of: answers given while the database takes nothing (docs/memory.md §2.7)."""

from __future__ import annotations

import logging
from collections import deque

from meshai.delivery.governor import Governor
from meshai.errors import LinkDownError, NotOnAirError
from meshai.radio.link import RadioLink, SendRequest

log = logging.getLogger(__name__)

MOST = 20


class Unstored:
    """A short queue in RAM; the sender gives it its turns. Whether a text arrives stays unknown."""

    def __init__(self, radio: RadioLink, governor: Governor) -> None:
        self._radio = radio
        self._governor = governor
        self._requests: deque[SendRequest] = deque(maxlen=MOST)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: SendRequest) -> None:
        """Queue a text; the oldest gives way to the twenty-first."""
        self._requests.append(request)

    async def send_next(self) -> bool:
        """Hand one text over, and count its airtime; False when the node did not take it (it is dropped)."""
        request = self._requests.popleft()
        try:
            await self._radio.send(request)
        except (LinkDownError, NotOnAirError) as error:
            log.warning("an answer that could not be stored was not sent: %s", error)
            return False
        self._governor.booked(
            self._governor.airtime_ms(
                len(request.text.encode()), is_dm=request.public_key is not None, has_reply=request.reply_id is not None
            )
        )
        return True
