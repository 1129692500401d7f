"""You as the phone: what is typed goes over the mesh, what comes back is shown as it comes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import threading
from collections.abc import AsyncIterator

from meshai.demo.printer import Printer
from meshai.demo.script import describe
from meshai.demo.stage import Part, Stage, missing
from meshai.radio.virtual import Fate, Message, Phone, Sent

HELP = (
    "Type a message and Enter; it goes to MeshAI as a direct message. !help shows its commands. "
    "Ctrl-D ends, Ctrl-C clears the line."
)
ANSWER_S = 240.0
"""A model has 180 s for an answer (DESIGN §3); then it is on its way."""
PATIENCE_S = 90.0
"""Seconds of the mesh without news after which a packet counts as lost."""
CHUNK = 65536


class Talk:
    """One phone's conversation with the bot."""

    def __init__(self, stage: Stage, phone: Phone, printer: Printer) -> None:
        self._stage = stage
        self._phone = phone
        self._printer = printer
        self._told: dict[int, Fate] = {}
        self._failed: dict[int, asyncio.Event] = {}
        phone.on_message = self._message
        phone.on_receipt = self._receipt

    async def send(self, text: str) -> Sent:
        """Send a line; receipts are shown when they come."""
        sent = await self._phone.send_dm(self._stage.bot, text)
        if sent.fate is Fate.FAILED:
            self._receipt(sent)
        elif sent.packet_id not in self._told:
            self._printer.detail("✓ sent")
        return sent

    async def settle(self, sent: Sent) -> None:
        """Wait until the answer to a line is complete; tell when it will not come. Raises what the daemon died of."""
        answering = asyncio.ensure_future(self._stage.answered(self._phone, sent))
        failing = asyncio.ensure_future(self._failed.setdefault(sent.packet_id, asyncio.Event()).wait())
        lost = asyncio.ensure_future(self._lost(sent))
        tasks = [answering, failing, lost]
        try:
            await asyncio.wait(tasks, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                self._missing(answering.result())
            elif lost.done():
                self._printer.detail(lost.result(), "bad")
            elif not failing.done():
                self._printer.detail("no complete answer came", "bad")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lost(self, sent: Sent) -> str:
        """Return once a line, or its answer, is known to have been lost on the air."""
        while True:
            await asyncio.sleep(PATIENCE_S / self._stage.speed)
            if not await self._stage.heard(sent, self._phone.node.id):
                return "your message was lost on the air; send it again"
            parts = await self._stage.parts(sent.packet_id, self._phone.node.id)
            lost = missing(parts or [], self._phone)
            if lost and all(part.state == "relayed" for part in lost):
                return "the answer was lost on the air; !again asks for it"

    def _missing(self, parts: list[Part]) -> None:
        lost = missing(parts, self._phone)
        if not parts:
            self._printer.detail("MeshAI heard that and does not answer it")
        elif lost:
            count = len({part.part for part in parts})
            why = lost[0].reason or "nothing was heard of it"
            self._printer.detail(f"{len(lost)} of {count} parts did not arrive: {lost[0].state}, {why}", "bad")

    def _message(self, message: Message) -> None:
        who = "MeshAI" if message.from_num == self._stage.bot else f"!{message.from_num:08x}"
        if message.emoji:
            self._printer.detail(f"{who} put {message.text} on your message")
            return
        self._printer.said(message.at, who, message.text, is_bot=True)
        self._printer.detail(describe(message))

    def _receipt(self, sent: Sent) -> None:
        if self._told.get(sent.packet_id) is sent.fate:
            return
        self._told[sent.packet_id] = sent.fate
        quote = sent.text if len(sent.text) <= 20 else f"{sent.text[:19]}…"
        match sent.fate:
            case Fate.ACKED:
                self._printer.detail(f"✓ delivered after {sent.took_s:.1f} s: {quote}", "good")
            case Fate.RELAYED:
                self._printer.detail(f"✓ relayed after {sent.took_s:.1f} s: {quote}")
            case Fate.FAILED:
                self._failed.setdefault(sent.packet_id, asyncio.Event()).set()
                why = " (longer than 220 bytes)" if sent.error == "TOO_LARGE" else ""
                self._printer.detail(f"✗ not delivered, {sent.error}{why}: {quote}", "bad")
            case Fate.SENT:
                pass


async def lines(descriptor: int) -> AsyncIterator[str]:
    """The lines of a pipe or a file, without blocking the loop or the end of the program."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        # A daemon thread on the bare descriptor: sys.stdin's lock would stop the interpreter from ending.
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            while True:
                try:
                    chunk = os.read(descriptor, CHUNK)
                except OSError:
                    chunk = b""
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
                if not chunk:
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while chunk := await arrived.get():
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in whole:
            yield line.rstrip("\r")
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
