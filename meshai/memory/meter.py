"""Tokens for one program: which counter a model gets, what servers taught about it, and the budget of a prompt."""

from __future__ import annotations

import logging
from collections import OrderedDict

from meshai.clock import Clock
from meshai.config.model import Memory as MemorySettings
from meshai.llm.base import Usage
from meshai.memory import calibrate
from meshai.memory.budget import Budget, plan
from meshai.memory.tokens import Measure, TokenCounter
from meshai.storage import calibration
from meshai.storage.calibration import Calibration
from meshai.storage.database import Database

log = logging.getLogger(__name__)

SAVED_EVERY = 20
"""Counts a crash may cost: a write for each would wear out an SD card for nothing."""
REMEMBERED = 64
"""Prompts whose least possible size is kept until their usage comes back."""


class Meter:
    """Measures texts and learns from ``usage``; what it learned is stored once a change is worth it."""

    def __init__(self, settings: MemorySettings, clock: Clock, counter: TokenCounter | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._counter = counter or TokenCounter(settings.token_counter)
        self._known: dict[str, Calibration] = {}
        self._saved: dict[str, Calibration] = {}
        self._unsaved: set[str] = set()
        self._least: OrderedDict[int, tuple[str, int]] = OrderedDict()

    def reconfigure(self, settings: MemorySettings) -> None:
        """Take new settings over."""
        if settings.token_counter != self._settings.token_counter:
            self._counter = TokenCounter(settings.token_counter)
        self._settings = settings

    async def load(self, db: Database) -> None:
        """Read what earlier runs learned."""
        self._known = {known.model: known for known in await calibration.every(db)}
        self._saved = dict(self._known)

    @property
    def is_due(self) -> bool:
        """Is something unsaved that a crash should not cost: a context, a new model, or many counts?"""
        return any(_is_far(self._saved.get(model), self._known[model]) for model in self._unsaved)

    async def save(self, db: Database) -> None:
        """Store what was learned since the last time."""
        if not self._unsaved:
            return
        for model in sorted(self._unsaved):
            value = self._known[model]
            await db.transaction(lambda tx, value=value: calibration.save(tx, value))  # type: ignore[misc]
            self._saved[model] = value
            if self._known[model] is value:
                self._unsaved.discard(model)

    def measure(self, model: str) -> Measure:
        """The function that counts this model's tokens, before correction by what was learned."""
        return self._counter.measure(model)

    def context(self, model: str, told: int) -> int:
        """The context to plan with."""
        return calibrate.context(self._known.get(model), told, self._clock.now())

    def factor(self, model: str) -> float:
        """True tokens per measured one, on the safe side."""
        known = self._known.get(model)
        if known is None and self._counter.is_exact(model):
            return 1.0
        return calibrate.factor(known)

    def budget(self, model: str, *, context_tokens: int, reply_tokens: int) -> Budget:
        """The budget of a prompt for this model, in measured tokens."""
        return plan(
            context_tokens=self.context(model, context_tokens),
            reply_tokens=reply_tokens,
            configured=self._settings.context_budget,
            factor=self.factor(model),
            shares=self._settings.tuning.shares,
        )

    def remember(self, tokens_est: int, model: str, least: int) -> None:
        """A prompt of this estimate was planned for ``model`` and cannot have fewer than ``least`` tokens."""
        self._least[tokens_est] = (model, least)
        while len(self._least) > REMEMBERED:
            self._least.popitem(last=False)

    def learn(self, model: str, tokens_est: int, usage: Usage) -> None:
        """Take a server's count in: calibration, or the discovery that it cuts prompts silently."""
        planned_for, least = self._least.get(tokens_est, (model, 0))  # a server may call its model another name
        counted, known = usage.prompt_tokens, self._known.get(planned_for, Calibration(planned_for))
        if counted <= 0 or tokens_est <= 0:
            return
        now = self._clock.now()
        if calibrate.is_truncated(least, counted):
            if known.n_ctx != counted:
                log.warning(
                    "%s counted %d of about %d prompt tokens: it seems to cut prompts silently; planning with %d"
                    " from now on (raise the server's context length, e.g. num_ctx)",
                    model,
                    counted,
                    tokens_est,
                    counted,
                )
            self._store(calibrate.truncated(known, counted, now))
        else:
            self._store(calibrate.observe(known, tokens_est, counted, now))

    def learn_context(self, model: str, context_tokens: int | None) -> None:
        """The server refused a prompt as too long, and named its context or not."""
        known = self._known.get(model, Calibration(model))
        log.warning("%s refused a prompt as too long (context %s)", model, context_tokens or "not named")
        self._store(calibrate.refused(known, context_tokens, self._clock.now()))

    def _store(self, value: Calibration) -> None:
        self._known[value.model] = value
        self._unsaved.add(value.model)


def _is_far(saved: Calibration | None, known: Calibration) -> bool:
    return saved is None or saved.n_ctx != known.n_ctx or known.n - saved.n >= SAVED_EVERY
