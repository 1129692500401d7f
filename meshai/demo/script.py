"""The scripted conversation of ``meshai demo``; it checks everything it shows."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field

from meshai.demo.printer import Printer
from meshai.demo.stage import Part, Stage
from meshai.errors import CheckFailedError
from meshai.radio.airtime import frame_bytes, time_on_air_ms
from meshai.radio.virtual import Fate, Message, Phone, Sent

log = logging.getLogger(__name__)

ANSWER_S = 15.0
"""Real seconds until a complete answer; at the demo's speed that is minutes of the mesh."""
PATIENCE_S = 60.0
"""Seconds of the mesh after which a person without receipt and answer sends again."""
RECEIPTS_S = 1.5
"""Real seconds to wait for the last receipts; one that got lost on its way back never comes."""
RECEIPT_AFTER_S = 5.0
"""Seconds of the mesh that a receipt may be late; the next thing shown is the answer."""
LOOK_EVERY_S = 0.02
TRIES = 3
"""So often a person sends a message that their phone reports as failed."""
DEADLINE_S = 55.0
PLACE = "north ridge"
MARK = re.compile(r"^\[(\d+)(?:/(\d+))?\] ")


@dataclass(slots=True)
class Reply:
    """An answer as it arrived on a phone."""

    messages: list[Message]
    parts: list[Part]

    @property
    def text(self) -> str:
        """All parts in one line, without their marks."""
        return " ".join(MARK.sub("", message.text) for message in self.messages)


@dataclass(slots=True)
class Totals:
    """What the demo put on the air."""

    messages: int = 0
    packets: int = 0
    airtime_ms: int = 0
    started: float = field(default_factory=time.monotonic)


class Play:
    """Plays the scenes in order. Raises CheckFailedError with a sentence when something is not as it should be."""

    def __init__(self, stage: Stage, printer: Printer) -> None:
        self.totals = Totals()
        self._stage = stage
        self._printer = printer
        self._alice, self._bob = stage.phones
        stage.spare_last_hops()

    async def run(self) -> None:
        """The whole conversation."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._run()
        except TimeoutError:
            raise CheckFailedError(
                f"the demo did not end within {DEADLINE_S:g} s; is this computer very busy?"
            ) from None

    async def _run(self) -> None:
        self._introduce()
        await self._start()
        await self._in_parts()
        await self._follow_up()
        await self._commands()
        await self._stranger()
        await self._restart()
        await self._reset()
        await self._stage.stop_bot()

    # The scenes.

    def _introduce(self) -> None:
        virtual = self._stage.virtual
        self._printer.line(
            f"MeshAI on a virtual mesh: four nodes on a lossy LongFast channel, {self._stage.speed:g} times as fast as "
            "life. The daemon is the real one, connected through the meshtastic library over TCP. No network, no key, "
            "no language model: the built-in offline answerer speaks."
        )
        self._printer.line()
        self._printer.line(f"   Alice {self._alice.node.id} --- {virtual.relay.settings.long_name} --- "
                           f"MeshAI {virtual.bot.id}")  # fmt: skip
        self._printer.line(f"   Bob   {self._bob.node.id} --- both of them, the bot only faintly")

    async def _start(self) -> None:
        try:
            await self._stage.start_bot()
        except TimeoutError:
            raise CheckFailedError("the daemon did not connect to its node within 30 s") from None

    async def _in_parts(self) -> None:
        self._printer.heading("1. A question, answered in several parts")
        reply = await self._ask(self._alice, "Please explain the modem presets in detail.")
        count = len(reply.messages)
        marks = [MARK.match(message.text) for message in reply.messages]
        _expect(count >= 2, f"the long answer should have come in several parts, not in {count}")
        _expect(
            [int(mark[1]) if mark else 0 for mark in marks] == list(range(1, count + 1)),
            "the parts should be marked [1], [2], ... in the order they arrived",
        )
        _expect(bool(marks[-1] and marks[-1][2] == str(count)), f"the last part should be marked [{count}/{count}]")
        _expect("LongFast" in reply.text, "the answer should have been about modem presets")
        _expect(max(message.size for message in reply.messages) <= 200, "no part may be longer than 200 bytes")

    async def _follow_up(self) -> None:
        self._printer.heading("2. It remembers")
        await self._ask(self._alice, f"I am Alice and my camp is at the {PLACE}.")
        reply = await self._ask(self._alice, "Where is my camp?")
        _expect(PLACE in reply.text, f"the bot should have remembered the {PLACE}")

    async def _commands(self) -> None:
        self._printer.heading("3. Commands")
        reply = await self._ask(self._alice, "!ping")
        _expect("pong" in reply.text and "1 hop" in reply.text, "!ping should have reported one hop")
        reply = await self._ask(self._alice, "!status")
        _expect("memory 6 messages" in reply.text, "!status should have counted three questions and three answers")

    async def _stranger(self) -> None:
        self._printer.heading("4. Another person sees nothing of that")
        reply = await self._ask(self._bob, "Where is my camp?")
        _expect("ridge" not in reply.text.lower(), "the bot told one person what another one had said")

    async def _restart(self) -> None:
        self._printer.heading("5. The daemon is stopped and started again")
        await self._stage.stop_bot()
        began = time.monotonic()
        await self._start()
        took = time.monotonic() - began
        self._printer.detail(f"same database, new process state; connected again after {took:.1f} s of real time")
        reply = await self._ask(self._alice, "Do you still know where my camp is?")
        _expect(PLACE in reply.text, f"after the restart the bot should still know the {PLACE}")

    async def _reset(self) -> None:
        self._printer.heading("6. !reset makes it forget")
        reply = await self._ask(self._alice, "!reset")
        _expect(
            reply.text == "Cleared 8 messages from your history.",
            f"!reset should have cleared four questions and four answers, but said: {reply.text}",
        )
        reply = await self._ask(self._alice, "Where is my camp?")
        _expect("ridge" not in reply.text.lower(), "after !reset the bot still knew the camp")

    # One message and its answer.

    async def _ask(self, phone: Phone, text: str) -> Reply:
        """Send, show everything that comes back. A message that did not reach the bot is sent again."""
        for attempt in range(1, TRIES + 1):
            self.totals.messages += 1
            seen = len(phone.received)
            self._printer.said(phone.node.timeline.now(), _name(phone), text, is_bot=False)
            sent = await phone.send_dm(self._stage.bot, text)
            if await self._arrives(phone, sent):
                self._printer.detail(_receipt(sent), "good" if sent.fate is Fate.ACKED else "dim")
                await self._show_answer(phone, sent, seen)
                return await self._reply(phone, sent, seen)
            why = sent.error or "no answer"
            self._printer.detail(f"✗ lost on the air ({why})" + ("; once more" if attempt < TRIES else ""), "bad")
        raise CheckFailedError(f"{_name(phone)}'s message did not reach the bot in {TRIES} attempts")

    async def _arrives(self, phone: Phone, sent: Sent) -> bool:
        """Wait for the receipt of a message, or for the bot having it: then the receipt may still be lost."""
        timeline = phone.node.timeline
        give_up_at = timeline.now() + PATIENCE_S
        heard_at = None
        while sent.fate is not Fate.ACKED:
            if heard_at is None and await self._stage.heard(sent, phone.node.id):
                heard_at = timeline.now()
            if heard_at is None and (sent.fate is Fate.FAILED or timeline.now() > give_up_at):
                return False
            if heard_at is not None and timeline.now() > heard_at + RECEIPT_AFTER_S:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    async def _show_answer(self, phone: Phone, sent: Sent, seen: int) -> None:
        """Show the parts as they come, until the answer is complete."""
        answering = asyncio.ensure_future(self._stage.answered(phone, sent))
        try:
            async with asyncio.timeout(ANSWER_S):
                done = False
                while not done:
                    await asyncio.wait([answering], timeout=LOOK_EVERY_S)
                    done = answering.done()
                    for message in phone.received[seen:]:
                        self._show(message)
                    seen = len(phone.received)
                answering.result()
        except TimeoutError:
            raise CheckFailedError(
                f"no complete answer to {sent.text!r} came within {ANSWER_S:g} s ({await self._known(phone, sent)})"
            ) from None
        finally:
            answering.cancel()

    async def _known(self, phone: Phone, sent: Sent) -> str:
        """What the daemon knows of an answer that does not come."""
        parts = await self._stage.parts(sent.packet_id, phone.node.id)
        if parts is None:
            return "the bot has no answer yet"
        return "the bot says: " + ", ".join(f"part {p.part} {p.state} {p.reason}".strip() for p in parts)

    async def _reply(self, phone: Phone, sent: Sent, seen: int) -> Reply:
        parts = await self._stage.settled(phone, sent, RECEIPTS_S)
        messages = [m for m in phone.received[seen:] if m.from_num == self._stage.bot and not m.emoji]
        _expect(bool(messages), f"the bot did not answer {sent.text!r}")
        count = len({part.part for part in parts})
        delivered = len({part.part for part in parts if part.state == "delivered"})
        air = sum(part.airtime_ms for part in parts)
        self.totals.packets += len(parts)
        self.totals.airtime_ms += air
        text = f"{count} part{'s' if count > 1 else ''}, {delivered} confirmed"
        if len(parts) > count:
            text += f", {len(parts) - count} sent again"
        if delivered < count:
            text += " (a confirmation got lost)"
        mark = "✓ " if delivered == count else ""
        self._printer.detail(f"{mark}{text}; {air / 1000:.1f} s of the bot's airtime", "good" if mark else "dim")
        return Reply(messages, parts)

    def _show(self, message: Message) -> None:
        who = "MeshAI" if message.from_num == self._stage.bot else f"!{message.from_num:08x}"
        self._printer.said(message.at, who, message.text, is_bot=True)
        self._printer.detail(describe(message))


def describe(message: Message) -> str:
    """Size, way and time on the air of a text that arrived."""
    way = "direct" if message.hops <= 0 else f"{message.hops} hop{'s' if message.hops > 1 else ''}"
    size = frame_bytes(message.size, pki=message.pki, has_reply=bool(message.reply_id), is_tapback=message.emoji)
    lock = ", encrypted with your key" if message.pki else ", NOT encrypted"
    return f"{message.size} bytes, {way}, {time_on_air_ms(size) / 1000:.1f} s on air{lock}"


def _receipt(sent: Sent) -> str:
    if sent.fate is Fate.ACKED:
        return f"✓ delivered after {sent.took_s:.1f} s"
    return (
        "relayed; the bot's confirmation got lost" if sent.fate is Fate.RELAYED else "the bot's confirmation got lost"
    )


def _name(phone: Phone) -> str:
    return phone.node.settings.long_name


def _expect(condition: bool, complaint: str) -> None:
    if not condition:
        raise CheckFailedError(f"the demo did not go as it should: {complaint}")
