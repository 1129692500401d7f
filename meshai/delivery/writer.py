"""An answer that is sent while it is being written (DESIGN §3 item 5: marks ``[1]``, ``[2]``, last ``[3/3]``).

Use: ``writer = await begin(...)``; for each piece of the model's text ``if writer.add(piece):
transaction(writer.commit_ready)``; at the end
``text = writer.close()`` and, in the transaction that stores the assistant's row, ``writer.finish(tx, ...)``.
"""

from __future__ import annotations

from dataclasses import replace

from meshai.delivery.outbox import Address, Answer, Committed, Outbox, harmless_start
from meshai.delivery.parts import (
    MIN_FILL,
    MIN_LAST_BYTES,
    MORE_HINT,
    Cut,
    cut,
    fit_graphemes,
    mark,
    size,
    take,
    whole_sentences,
)
from meshai.delivery.plain import PlainStream
from meshai.storage import answers, outbound
from meshai.storage.answers import AnswerRow
from meshai.storage.database import Queries, Transaction
from meshai.storage.outbound import Packet

CUT_BY_RESTART = "[cut by a restart; ask again]"
"""Closes an answer that a restart broke and that could not be continued (DESIGN §3)."""
BROKEN_OFF = "[broken off; ask again]"
"""Closes an answer whose model failed in the middle."""


async def begin(outbox: Outbox, q: Queries, answer: Answer) -> AnswerWriter:
    """A writer for a new answer; nothing is stored before its first part is final."""
    return AnswerWriter(outbox, answer, await outbox.parts_allowed(q, answer))


async def resume(outbox: Outbox, q: Queries, row: AnswerRow) -> AnswerWriter:
    """A writer that goes on with an answer a restart broke, if the new text begins with what was committed."""
    packets = [p for p in await outbound.of_answer(q, row.id) if p.reason != outbound.SUPERSEDED]
    hops = next((p.hop_limit - 2 for p in packets if p.hop_limit is not None), None)
    answer = Answer(
        Address(row.node_id, row.public_key), "", row.kind, row.conv_id, row.inbound_id, None, hops, row.asked_at,
        message_id=row.message_id,
    )  # fmt: skip
    before = len({packet.part for packet in packets})
    max_parts = max(before + 1, await outbox.parts_allowed(q, answer))
    return AnswerWriter(outbox, answer, max_parts, broken=row, before=before)


class AnswerWriter:
    """Turns the model's text into parts as soon as they are final."""

    def __init__(
        self, outbox: Outbox, answer: Answer, max_parts: int, *, broken: AnswerRow | None = None, before: int = 0
    ) -> None:
        self._outbox = outbox
        self._answer = answer
        self._max_parts = max_parts
        self._plain = PlainStream()
        self._text = ""  # plain text so far
        self._placed = 0  # where the next part begins in it
        self._broken = broken
        self._done = before  # parts committed
        self.answer_id: int | None = broken.id if broken else None
        self._committing = False
        self._truncated = False
        self.diverged = False

    @property
    def committed(self) -> bool:
        """A part is in the outbox, or being put there: the answer can no longer be taken back."""
        return self.answer_id is not None or self._committing

    @property
    def text(self) -> str:
        """The answer as the person gets it: what was sent already if the new text went another way."""
        return self._broken.text if self.diverged and self._broken else self._text.rstrip()

    def add(self, raw: str) -> bool:
        """Take more of the model's text; True when a part is final and ``commit_ready`` should be called."""
        self._take_in(self._plain.feed(raw))
        return self._ready(self._placed, self._done)

    def close(self, *, truncated: bool = False) -> str:
        """The model is finished; returns the whole text, up to its last sentence if the model was cut off."""
        self._take_in(self._plain.close())
        self._truncated = truncated
        if truncated:
            self._text = whole_sentences(self._text, start=self._placed)
        if self._broken is not None and self._placed == 0:
            self.diverged = True  # it said less than before
        return self.text

    def append_if_free(self, line: str) -> bool:
        """After ``close``: add a line if the last part has room for it as it is; True if it was added."""
        if self._truncated or self.diverged:
            return False
        before = self._cut_left(self._done + 1, "")
        if before.rest or not before.parts or size(before.parts[-1] + line) > self._max_bytes():
            return False
        without, self._text = self._text, self._text.rstrip() + line
        after = self._cut_left(self._done + 1, "")
        if len(after.parts) == len(before.parts) and not after.rest:
            return True
        self._text = without
        return False

    async def commit_ready(self, tx: Transaction) -> int:
        """Queue every part that is final; returns how many."""
        placed, done, answer_id = self._placed, self._done, self.answer_id
        self._committing = True  # the caller may be cancelled now, the transaction is not
        while self._ready(placed, done):
            if answer_id is None:
                answer_id = await self._begin_row(tx)
            end = take(self._text, self._room(), start=placed, fill=int(self._max_bytes() * MIN_FILL) - self._mark())
            number = await self._next_part(tx, answer_id)
            content = mark(number, 0) + self._text[placed:end].rstrip()
            await self._queue(tx, answer_id, number, 0, content, placed)
            await answers.grow(tx, answer_id, text=self._text[:end].rstrip())
            placed = end + len(self._text[end:]) - len(self._text[end:].lstrip())
            done += 1
        count = done - self._done
        tx.after_commit(lambda: self._advance(placed, done, answer_id))
        return count

    async def finish(
        self, tx: Transaction, *, truncated: bool = False, note: str = "", message_id: int | None = None
    ) -> Committed:
        """Queue what is left, in the transaction that stores the assistant's row. ``note`` closes a broken answer."""
        if self.answer_id is None:
            return await self._finish_short(tx, truncated=truncated, note=note, message_id=message_id)
        self._truncated = truncated
        if self.diverged and not note:
            note = CUT_BY_RESTART
        left = self._left()
        number = await self._next_part(tx, self.answer_id)
        pieces = self._cut_left(number, note)
        begin = len(self.text[: self._placed]) if left else len(self.text)
        total = number - 1 + len(pieces.parts)
        for index, (content, start) in enumerate(zip(pieces.parts, pieces.starts, strict=True)):
            await self._queue(tx, self.answer_id, number + index, total, content, begin + start)
        sent_text = self._text[: self._placed] + pieces.text if left else self.text
        sent_text = f"{sent_text} {note}".rstrip()
        await self._complete(tx, sent_text, pieces.rest, truncated=truncated, message_id=message_id)
        await outbound.set_total(tx, self.answer_id, total)
        return Committed(self.answer_id, pieces.parts, pieces.rest)

    async def stop(self, tx: Transaction, *, message_id: int | None = None) -> None:
        """``!stop``: nothing more of this answer; what was committed is the whole of it."""
        if self.answer_id is None:
            self.abandon()
            return
        row = await answers.get(tx, self.answer_id)
        await self._complete(tx, row.text if row else "", "", truncated=False, message_id=message_id)
        await outbound.set_total(tx, self.answer_id, await self._next_part(tx, self.answer_id) - 1)

    def abandon(self) -> None:
        """The answer is given up before anything of it was committed."""
        self._outbox.governor.release(self)

    # The text.

    def _take_in(self, plain: str) -> None:
        if not self._text:
            plain = harmless_start(plain.lstrip())
        self._text += fit_graphemes(plain, self._max_bytes() - 30)
        already = self._broken.text if self._broken else ""
        if already and self._placed == 0 and not self.diverged:
            if self._text[: len(already)] != already[: len(self._text)]:
                self.diverged = True
            elif len(self._text) > len(already):
                after = self._text[len(already) :]
                self._placed = len(already) + len(after) - len(after.lstrip())

    def _ready(self, placed: int, done: int) -> bool:
        """A part is final when the text goes on for more than a last part may be too short to stand alone."""
        if self.diverged or (self._broken and placed == 0):
            return False
        if done >= self._max_parts - 1:
            return False
        return size(self._text[placed:].rstrip()) >= self._room() + MIN_LAST_BYTES

    def _max_bytes(self) -> int:
        return self._outbox.settings().max_bytes

    def _mark(self) -> int:
        return len(mark(self._max_parts, 0))

    def _room(self) -> int:
        return self._max_bytes() - self._mark()

    def _left(self) -> str:
        return "" if self.diverged else self._text[self._placed :].rstrip()

    def _cut_left(self, number: int, note: str) -> Cut:
        left = self._left()
        return cut(
            left or note,
            max_bytes=self._max_bytes(),
            max_parts=max(1, self._max_parts - number + 1),
            first_part=number,
            more_hint=f" {note}" if note else MORE_HINT,
            more_follows=bool(left) and (self._truncated or bool(note)),
        )

    # The rows.

    async def _begin_row(self, tx: Transaction) -> int:
        if self._answer.inbound_id is not None:
            await outbound.drop_tapbacks(tx, self._answer.inbound_id, now=self._outbox.clock.now())
        return await self._outbox.insert_answer(tx, self._answer, text="", rest="", complete=False)

    async def _finish_short(self, tx: Transaction, *, truncated: bool, note: str, message_id: int | None) -> Committed:
        answer = replace(self._answer, truncated=truncated, message_id=message_id, max_parts=self._max_parts)
        committed = await self._outbox.commit_plain(tx, answer, f"{self.text} {note}".strip())

        def done() -> None:
            self.answer_id = committed.answer_id
            self.abandon()

        tx.after_commit(done)
        return committed

    async def _queue(
        self, tx: Transaction, answer_id: int, number: int, total: int, content: str, text_from: int
    ) -> None:
        await self._outbox.queue_part(
            tx, self._answer, answer_id, part=number, total=total, content=content, text_from=text_from,
            after=await _stuck(tx, answer_id), first_is_out=number > 1,
        )  # fmt: skip

    async def _next_part(self, q: Queries, answer_id: int) -> int:
        return 1 + max((packet.part for packet in await outbound.of_answer(q, answer_id)), default=0)

    async def _complete(
        self, tx: Transaction, text: str, rest: str, *, truncated: bool, message_id: int | None
    ) -> None:
        assert self.answer_id is not None
        await answers.grow(
            tx, self.answer_id, text=text, rest=rest, truncated=truncated, complete=True, message_id=message_id
        )
        tx.after_commit(self.abandon)
        tx.after_commit(self._outbox.wake)

    def _advance(self, placed: int, done: int, answer_id: int | None) -> None:
        self._placed, self._done, self.answer_id = placed, done, answer_id
        self._outbox.governor.reserve(self, max(0, self._max_parts - done), self._max_bytes())
        self._outbox.wake()


async def _stuck(q: Queries, answer_id: int) -> Packet | None:
    """The earlier part that keeps later ones from going: held, or ended without being delivered."""
    newest = {p.part: p for p in await outbound.of_answer(q, answer_id) if p.reason != outbound.SUPERSEDED}
    return next((p for p in newest.values() if p.state in ("held", "failed", "expired")), None)
