"""Whose turn it is: one answer at a time for a person, fair between persons, a bounded queue (DESIGN §3 item 4).

A question that arrives before the first part of the answer in progress is committed joins it: the model is asked
again with both texts, at most three times. Later ones wait for the next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from meshai.inbox import Question
from meshai.storage.answers import AnswerRow

log = logging.getLogger(__name__)

MAX_RESTARTS = 3

LaneKey = tuple[str, bytes | None, int | None]


@dataclass(slots=True)
class Turn:
    """One answer in the making and the questions it answers."""

    questions: list[Question]
    restarts: int = 0
    settled: bool = False  # the first part is being committed: nothing may join or cancel it any more
    nodded: bool = False  # the "I am thinking" tapback was given
    warned: bool = False  # the distress sentence was given
    stopped: bool = False  # cancelled for good, by !stop or !reset
    continues: int | None = None  # the cut answer this turn goes on with (!more)
    resumes: AnswerRow | None = None  # an answer that a restart broke in the middle

    @property
    def last(self) -> Question:
        """The newest question: its packet is what the answer refers to."""
        return self.questions[-1]

    @property
    def can_join(self) -> bool:
        """Whether another question may still be answered together with these."""
        return not self.settled and self.restarts < MAX_RESTARTS and self.continues is None and self.resumes is None


@dataclass(slots=True)
class _Lane:
    waiting: deque[Turn] = field(default_factory=deque)
    turn: Turn | None = None
    task: asyncio.Task[None] | None = None
    stopping: bool = False


def lane_key(question: Question) -> LaneKey:
    """A person; on a channel every sender is a person of its own."""
    channel = question.channel.index if question.channel is not None else None
    return (question.person.node_id, question.person.public_key, channel)


class Responder:
    """The queue in front of the model."""

    def __init__(
        self, answer: Callable[[Turn], Awaitable[None]], *, parallel: int, max_waiting: Callable[[], int]
    ) -> None:
        """``answer`` makes and commits one answer; it may be cancelled and called again with the same turn."""
        self._answer = answer
        self._parallel = parallel
        self._max_waiting = max_waiting
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: deque[LaneKey] = deque()
        self._running = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Questions that no answer is being made for yet."""
        return sum(len(turn.questions) for lane in self._lanes.values() for turn in lane.waiting)

    @property
    def in_progress(self) -> int:
        """Answers being made now."""
        return self._running

    def submit(
        self,
        question: Question,
        *,
        continues: int | None = None,
        resumes: AnswerRow | None = None,
        earlier: Sequence[Question] = (),
    ) -> bool:
        """Queue a question; False when the queue is full and nothing was done.

        ``earlier``: questions that the answer to be resumed answers together with this one.
        """
        key = lane_key(question)
        lane = self._lanes.setdefault(key, _Lane())
        joined = continues is None and resumes is None and self._join(lane, question)
        if not joined:
            if self.waiting >= self._max_waiting() and resumes is None:  # half of it is on the air already
                self._forget_if_idle(key)
                return False
            lane.waiting.append(Turn([*earlier, question], continues=continues, resumes=resumes))
        self._make_ready(key)
        self._pump()
        return True

    async def stop(self, question: Question) -> list[Question]:
        """End the person's answer in progress and drop what waits; returns the questions that got no answer.

        An answer of which a part is committed ends there: the parts are the outbox's, the rest is not asked for.
        """
        lane = self._lanes.get(lane_key(question))
        if lane is None:
            return []
        dropped = [q for turn in lane.waiting for q in turn.questions]
        lane.waiting.clear()
        if lane.task is not None and lane.turn is not None:
            was_settled = lane.turn.settled
            questions = list(lane.turn.questions)
            lane.stopping = lane.turn.stopped = True
            lane.task.cancel()
            await asyncio.wait([lane.task])
            if not was_settled:
                dropped = questions + dropped
        return dropped

    async def close(self) -> None:
        """Cancel everything; the questions stay "answering" in the database and resume after a restart."""
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _join(self, lane: _Lane, question: Question) -> bool:
        if lane.turn is not None and lane.task is not None and lane.turn.can_join and not lane.stopping:
            lane.turn.questions.append(question)
            lane.turn.restarts += 1
            lane.task.cancel()
            return True
        if lane.waiting and lane.waiting[-1].can_join:
            lane.waiting[-1].questions.append(question)
            lane.waiting[-1].restarts += 1
            return True
        return False

    def _make_ready(self, key: LaneKey) -> None:
        lane = self._lanes[key]
        if lane.turn is None and lane.waiting and key not in self._ready:
            self._ready.append(key)

    def _pump(self) -> None:
        while self._ready and self._running < self._parallel and not self._closed:
            key = self._ready.popleft()
            lane = self._lanes[key]
            if lane.turn is None and lane.waiting:
                lane.turn = lane.waiting.popleft()
                self._running += 1
                self._launch(key, lane)

    def _launch(self, key: LaneKey, lane: _Lane) -> None:
        assert lane.turn is not None
        lane.stopping = False
        lane.task = asyncio.get_running_loop().create_task(self._run(lane.turn), name=f"answer {key[0]}")
        lane.task.add_done_callback(lambda task: self._ended(key, lane, task))

    async def _run(self, turn: Turn) -> None:
        await self._answer(turn)

    def _ended(self, key: LaneKey, lane: _Lane, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if not self._closed and not lane.stopping and lane.turn is not None:
                self._launch(key, lane)  # joined by another question: the same turn once more
                return
        elif task.exception() is not None:
            log.error("answering %s failed", key[0], exc_info=task.exception())
        lane.turn = None
        lane.task = None
        lane.stopping = False
        self._running -= 1
        self._make_ready(key)
        self._forget_if_idle(key)
        self._pump()

    def _forget_if_idle(self, key: LaneKey) -> None:
        lane = self._lanes.get(key)
        if lane is not None and lane.turn is None and not lane.waiting:
            del self._lanes[key]
