"""The configured endpoints as one model: in order, a failed one rests, one deadline for all (DESIGN §3, §4.2)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from meshai.clock import Clock
from meshai.errors import (
    ContextTooLongError,
    EmptyAnswerError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
)
from meshai.llm.base import ChatRequest, Completion, Delta, Purpose
from meshai.llm.client import EndpointClient, Terms
from meshai.llm.quirks import EndpointSettingsError
from meshai.llm.slots import Lease, Slots

log = logging.getLogger(__name__)

FIRST_REST_S = 60.0
LONGEST_REST_S = 600.0


@dataclass(slots=True)
class _Seat:
    """One endpoint and how it has been doing."""

    client: EndpointClient
    failures: int = 0  # in a row
    rests_until: float = 0.0
    last_error: str = ""
    last_failed_at: float = 0.0


class FailoverModel:
    """A ChatModel over one or more endpoints."""

    def __init__(self, clients: Sequence[EndpointClient], *, slots: Slots, clock: Clock) -> None:
        assert clients, "without endpoints there is the offline answerer"
        self._seats = [_Seat(client) for client in clients]
        self.slots = slots
        self._clock = clock

    @property
    def label(self) -> str:
        """Model and name of the endpoint that would be asked now."""
        return self._order()[0].client.label

    @property
    def is_offline(self) -> bool:
        """There is a model."""
        return False

    @property
    def leaves_house(self) -> bool:
        """True when any endpoint is outside: whichever answers, the disclosure must not promise too much."""
        return any(seat.client.leaves_house for seat in self._seats)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Visible text as it comes. Once some was yielded a failure is raised, never papered over by starting again."""
        last = Delta()
        deadline = self._deadline(request)
        async with (
            self.slots.hold(request.purpose, request.deadline_s) as lease,
            aclosing(self._through(request, lease, deadline, whole=False)) as deltas,
        ):
            async for delta in deltas:
                if delta.finish is None:
                    yield delta
                last = delta
        yield last  # the slot is free and the call is recorded by now, whatever the caller does with the end

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer. Background work raises PreemptedError when a reply needs its slot.

        A reply's deadline includes the wait for a slot; background work may wait as long as it takes.
        """
        reply = request.purpose is Purpose.REPLY
        deadline = self._deadline(request)
        timeout_s = request.deadline_s if reply else None
        async with self.slots.hold(request.purpose, timeout_s, gives_way=request.gives_way) as lease:
            work = self._collect(request, lease, deadline if reply else self._deadline(request))
            return await (work if reply else lease.run(work))

    async def context_tokens(self) -> int:
        """Of the endpoint that would be asked now; another one that is smaller answers ContextTooLongError."""
        return await self._order()[0].client.context_tokens()

    def status(self) -> dict[str, object]:
        """Endpoints in order, with their rests and failures."""
        return {
            "offline": False,
            "parallel": self.slots.count,
            "busy": self.slots.busy,
            "waiting": self.slots.waiting,
            "endpoints": [self._seat_status(seat) for seat in self._seats],
        }

    async def aclose(self) -> None:
        """Close connections."""
        for seat in self._seats:
            await seat.client.aclose()

    def _deadline(self, request: ChatRequest) -> float:
        return self._clock.monotonic() + request.deadline_s

    async def _collect(self, request: ChatRequest, lease: Lease, deadline: float) -> Completion:
        last = Delta()
        async with aclosing(self._through(request, lease, deadline, whole=True)) as deltas:
            async for delta in deltas:
                last = delta
        assert last.finish is not None
        return Completion(last.text.strip(), last.finish)

    async def _through(
        self, request: ChatRequest, lease: Lease, deadline: float, *, whole: bool
    ) -> AsyncGenerator[Delta, None]:
        order = self._order()
        for number, seat in enumerate(order):
            is_last = number == len(order) - 1
            terms = Terms(deadline, patient=is_last, whole=whole, preempted=lambda: lease.preempted)
            delivered = False
            try:
                async with aclosing(seat.client.stream(request, terms)) as deltas:
                    async for delta in deltas:
                        delivered = delivered or bool(delta.text)
                        if delta.finish is not None:
                            self._succeeded(seat)
                        yield delta
            except ModelError as error:
                self._failed(seat, error)
                if delivered or is_last or _is_final(error) or self._clock.monotonic() >= deadline:
                    raise
            else:
                return

    def _order(self) -> list[_Seat]:
        """Rested ones as configured, then the resting ones, the soonest to wake first: better than no answer."""
        now = self._clock.monotonic()
        resting = [seat for seat in self._seats if seat.rests_until > now]
        awake = [seat for seat in self._seats if seat.rests_until <= now]
        return awake + sorted(resting, key=lambda seat: seat.rests_until)

    def _succeeded(self, seat: _Seat) -> None:
        if seat.failures:
            log.info("endpoint %s answers again", seat.client.endpoint.name)
        seat.failures, seat.rests_until = 0, 0.0

    def _failed(self, seat: _Seat, error: ModelError) -> None:
        seat.last_error, seat.last_failed_at = str(error), self._clock.now()
        seat.client.failed(error)
        log.warning("endpoint %s: %s", seat.client.endpoint.name, error)
        if not _is_worn_out(error):
            return
        seat.failures += 1
        rest = min(FIRST_REST_S * 2 ** min(seat.failures - 1, 10), LONGEST_REST_S)
        if isinstance(error, ModelRateLimitError) and error.retry_after_s is not None:
            rest = max(rest, min(error.retry_after_s, LONGEST_REST_S))
        seat.rests_until = self._clock.monotonic() + rest

    def _seat_status(self, seat: _Seat) -> dict[str, object]:
        rest = max(0.0, seat.rests_until - self._clock.monotonic())
        return {
            **seat.client.status(),
            "state": "resting" if rest else "ready",
            "rest_s": round(rest),
            "failures": seat.failures,
            "last_error": seat.last_error,
            "last_failed_at": seat.last_failed_at,
        }


def _is_final(error: ModelError) -> bool:
    """No other endpoint is asked: the memory trims the prompt, or the model answered, only with nothing."""
    return isinstance(error, ContextTooLongError | EmptyAnswerError)


def _is_worn_out(error: ModelError) -> bool:
    """The endpoint rests. Not for a request it rejects for what is in it: the next one may be fine."""
    return isinstance(error, EndpointSettingsError) or not isinstance(error, ModelRequestError | EmptyAnswerError)
