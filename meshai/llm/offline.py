"""Answers without a language model: looks up the package's knowledge texts and the person's own earlier messages.

It never makes anything up: every word about the world is a sentence of a text, every word about the person is a
quotation with its time, and when nothing fits well it says so. It always says that no language model is connected.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator

from meshai.clock import Clock
from meshai.errors import ModelUnavailableError
from meshai.knowledge.index import TextIndex, content_words
from meshai.knowledge.notes import Notes
from meshai.knowledge.passages import Passage, built_in, split_sentences
from meshai.llm.base import (
    CallRecord,
    ChatRequest,
    Completion,
    Delta,
    Finish,
    OnCall,
    Outcome,
    Purpose,
    Recall,
    Recalled,
)

log = logging.getLogger(__name__)

BYTES_PER_TOKEN = 2.5  # DESIGN's max_tokens is bytes / 3 + 20; a little below stays inside the parts it was made for
EARLIEST_PLAUSIBLE = 1_735_689_600  # 2025-01-01: before that the computer's clock has not been set
NO_MODEL = "No language model is connected"
NOTES = f"{NO_MODEL}. From my notes: "
NOTES_AGAIN = "From my notes (no language model): "
NOTED = f"Noted. {NO_MODEL}, but I keep what you write and look it up when you ask about it."
NOT_KEPT = f"{NO_MODEL}, and nothing is kept of this conversation: I can only answer from my notes on Meshtastic."
HELLO = f"Hello! {NO_MODEL}: I look things up in notes on Meshtastic and in what you wrote to me. Just ask."
WELCOME = f"You are welcome. ({NO_MODEL}.)"
UNKNOWN = (
    f"{NO_MODEL} and my notes say nothing on that. "
    "Ask about Meshtastic (hops, presets, roles, keys, range) or what you told me."
)
UNKNOWN_OF_YOU = f"I find nothing like that in what you wrote to me. ({NO_MODEL}: I only look words up.)"

# With a question mark, or by the first word: people on a phone leave the mark out.
_QUESTION = re.compile(
    r"\?|？|¿|^\W*(?:what|who|whom|whose|where|when|why|how|which|is|are|am|do|does|did|can|could|should|shall|would"
    r"|explain|tell|describe|list|show|give|compare|define|help|remind|what's|where's|who's|how's"
    r"|was|wer|wo|wann|warum|wie|welche\w*|kann|ist|sind|soll\w*|erkl\w*|que|qué|quién|dónde|cómo|cuál|qui|où|comment"
    r"|quel\w*|pourquoi|что|кто|где|как|какой|почему)\b",
    re.IGNORECASE,
)
_STATEMENT = re.compile(r"^\W*(?:i|i'm|i’m|i'll|my|we|our|it|the|ich|mein\w*|wir|je|mon|yo|mi)\b", re.IGNORECASE)
_PERSONAL = re.compile(
    r"\b(?:my|mine|our|ours|mein\w*|mon|mes|mi|mis)\b|\bwho am i\b|\bdo you (?:know|remember)\b|\bremind me\b"
    r"|\b(?:did|have|had) i\b|\bi (?:said|told|wrote|mentioned)\b|\bdo i\b|\bam i\b",
    re.IGNORECASE,
)
_DETAIL = re.compile(
    r"\b(?:explain|details?|detailed|describe|everything|overview|compare|all|list|tell me more|more about)\b",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|hallo|hola|salut|moin|good (?:morning|evening|day)|test)"
    r"(?:\W+(?:there|bot|ai|all|again|meshai|test|\d+))*\W*",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"\W*(?:thanks?|thank you|thx|danke|merci|gracias|ok(?:ay)?|great|cool|bye|73)"
    r"(?:\W+(?:you|so|a|lot|very|much|for|that|then|got|it|bye|thanks?|73))*\W*",
    re.IGNORECASE,
)
_ALL_OF_ME = re.compile(
    r"\b(?:(?:about|know|remember) me|did i (?:say|tell|write)|i (?:said|told|wrote))\b", re.IGNORECASE
)
_COMMAND = re.compile(r"!(\w+)")
_ABOUT_BOT = re.compile(r"\b(?:you|your)\b", re.IGNORECASE)
_MORE = re.compile(
    r"\W*(?:tell me |say |show )?(?:more|go on|continue|and)(?: about (?:that|it|this))?\W*", re.IGNORECASE
)


class OfflineAnswerer:
    """A ChatModel that needs no model, no network and no time."""

    def __init__(
        self, *, clock: Clock, recall: Recall | None = None, on_call: OnCall | None = None, max_bytes: int = 200
    ) -> None:
        """``max_bytes`` is the length of a short answer; asked for detail it goes up to the request's max_tokens."""
        self._clock = clock
        self._recall = recall
        self._on_call = on_call
        self._max_bytes = max_bytes
        self._notes = Notes()
        self._answers = 0

    @property
    def label(self) -> str:
        """For ``!status``."""
        return "offline answerer (no language model)"

    @property
    def is_offline(self) -> bool:
        """It is no model."""
        return True

    @property
    def leaves_house(self) -> bool:
        """Nothing leaves this process."""
        return False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """The answer, sentence by sentence. Raises ModelUnavailableError for all but replies: it cannot summarise."""
        started = self._clock.monotonic()
        if request.purpose is not Purpose.REPLY:
            raise ModelUnavailableError("no language model is connected")
        text = await self._answer(request)
        first, *rest = split_sentences(text)
        yield Delta(first)
        for sentence in rest:
            yield Delta(f" {sentence}")
        took = round((self._clock.monotonic() - started) * 1000)
        self._record(request, took)
        yield Delta(finish=Finish(endpoint="offline", first_token_ms=took, total_ms=took))

    async def complete(self, request: ChatRequest) -> Completion:
        """The answer at once."""
        texts: list[str] = []
        finish = Finish()
        async for delta in self.stream(request):
            texts.append(delta.text)
            finish = delta.finish or finish
        return Completion("".join(texts), finish)

    async def context_tokens(self) -> int:
        """It reads whatever it is given; this is enough for any window."""
        return 8192

    def status(self) -> dict[str, object]:
        """For ``status``."""
        return {"offline": True, "answers": self._answers, "passages": len(built_in()), "endpoints": []}

    async def aclose(self) -> None:
        """Free the index."""
        self._notes.close()

    async def _answer(self, request: ChatRequest) -> str:
        question = _question(request)
        if _MORE.fullmatch(question):
            question = f"explain {_previous_question(request)}"
        if _THANKS.fullmatch(question):
            return WELCOME
        if _GREETING.fullmatch(question):
            return HELLO
        commands = _COMMAND.findall(question.lower())
        words = list(dict.fromkeys([*commands, *content_words(question), *(["bot"] if commands else [])]))
        passages = self._passages(words, question)
        is_key_words = bool(passages) and len(words) <= 4 and not _STATEMENT.search(question)
        if not _QUESTION.search(question) and not is_key_words:
            return NOTED if request.conv_id else NOT_KEPT
        personal = bool(_PERSONAL.search(question))
        quotes = await self._quotes(
            request, question, words, everything=not words and bool(_ALL_OF_ME.search(question))
        )
        if quotes and (personal or not passages):
            return self._quoted(quotes)
        if passages:
            return self._told(request, question, passages)
        return UNKNOWN_OF_YOU if personal and request.conv_id else UNKNOWN

    def _passages(self, words: list[str], question: str) -> list[Passage]:
        """The texts that fit well, the best first."""
        if not words and _ABOUT_BOT.search(question):
            words = ["meshai"]  # a keyword of the passage on what this bot can do
        return self._notes.fitting(words)

    def _told(self, request: ChatRequest, question: str, passages: list[Passage]) -> str:
        """Whole sentences: those of the best passage in one packet, or all that fits when asked for detail."""
        detail = _DETAIL.search(question) is not None
        room = int(request.max_tokens * BYTES_PER_TOKEN)
        limit = room if detail else min(room, self._max_bytes)
        sentences = [sentence for passage in passages[: None if detail else 1] for sentence in passage.sentences]
        asked = [f"!{command}" for command in _COMMAND.findall(question.lower())]
        sentences.sort(key=lambda sentence: bool(asked) and not any(command in sentence for command in asked))
        lead = NOTES_AGAIN if _said_before(request) else NOTES
        text = lead + sentences[0]
        for sentence in sentences[1:]:
            if _size(text) + 1 + _size(sentence) > limit:
                break
            text = f"{text} {sentence}"
        return text

    async def _quotes(
        self, request: ChatRequest, question: str, words: list[str], *, everything: bool
    ) -> list[Recalled]:
        """What the person wrote that fits the question, the best and newest first."""
        if re.search(r"\bwho am i\b", question, re.IGNORECASE):
            words, everything = ["name"], False
        said = [r for r in await self._recalled(request, question) if _stated(r.text)]
        if everything:
            return sorted(said, key=lambda r: r.date, reverse=True)
        if not words or not said:
            return []
        index = TextIndex([("", _stated(r.text)) for r in said])
        hits = [hit for hit in index.search(words) if hit.coverage > 0.6]
        index.close()
        hits.sort(key=lambda hit: (-round(hit.coverage, 1), -said[hit.number].date, hit.number))
        best = hits[0].coverage - 0.1 if hits else 1.0
        return [said[hit.number] for hit in hits if hit.coverage >= best]

    async def _recalled(self, request: ChatRequest, question: str) -> list[Recalled]:
        """From the archive, then from the prompt: what was said last comes first there."""
        found: list[Recalled] = []
        if self._recall is not None and request.conv_id:
            try:
                found = await self._recall(request.conv_id, question)
            except Exception:  # a broken search must not cost the answer
                log.exception("looking up earlier messages failed")
        known = {recalled.text.strip() for recalled in found}
        window = [m.content for m in request.messages[:-1] if m.role == "user"]
        lines = [line.strip() for content in reversed(window) for line in reversed(content.splitlines())]
        return found + [Recalled(0.0, "", line) for line in dict.fromkeys(lines) if line not in known]

    def _quoted(self, quotes: list[Recalled]) -> str:
        """The best quotation, and a second one if it fits into the same packet."""
        text = self._quotation(quotes[0])
        for quote in quotes[1:3]:
            longer = f"{text} {self._quotation(quote)}"
            text = longer if _size(longer) + _size(NO_MODEL) + 4 <= self._max_bytes else text
        return f"{text} ({NO_MODEL}.)"

    def _quotation(self, quote: Recalled) -> str:
        who = quote.who if quote.who and quote.who.lower() not in {"you", "user", "me"} else "You"
        return f'{who} wrote{self._when(quote.date)}: "{quote.text.strip()}"'

    def _when(self, date: float) -> str:
        now = self._clock.now()
        if date < EARLIEST_PLAUSIBLE or now < EARLIEST_PLAUSIBLE:
            return " earlier"
        then, today = time.localtime(date), time.localtime(now)
        if then[:3] == today[:3]:
            return time.strftime(" at %H:%M", then)
        return time.strftime(" on %Y-%m-%d at %H:%M", then)

    def _record(self, request: ChatRequest, took: int) -> None:
        self._answers += 1
        if self._on_call is None:
            return
        record = CallRecord(
            request.purpose, "offline", "", Outcome.OK, request, first_token_ms=took, ms=took, requests=0,
            started_at=self._clock.now(),
        )  # fmt: skip
        try:
            self._on_call(record)
        except Exception:  # keeping the books must not cost anybody an answer
            log.exception("recording an answer failed")


def _question(request: ChatRequest) -> str:
    """The person's words; without them the last message, its notes in [brackets] left out."""
    if request.question.strip():
        return request.question.strip()
    last = request.messages[-1].content if request.messages else ""
    return re.sub(r"^(?:\s*\[[^\]]{0,2000}\])+", "", last).strip()


def _previous_question(request: ChatRequest) -> str:
    earlier = [m.content.strip() for m in request.messages[:-1] if m.role == "user"]
    return next((text for text in reversed(earlier) if content_words(text)), "")


def _stated(text: str) -> str:
    """What a message states: its questions left out, nothing of a command."""
    if text.lstrip().startswith("!"):
        return ""
    return " ".join(sentence for sentence in split_sentences(text) if not _QUESTION.search(sentence))


def _said_before(request: ChatRequest) -> bool:
    """Whether the last answer in this conversation already told that there is no model."""
    answers = [m.content for m in request.messages if m.role == "assistant"]
    return bool(answers) and NO_MODEL in answers[-1]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
