"""The step that finds a model server, its key and its model, and tries one question."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

from pydantic import SecretStr

from meshai.clock import Clock
from meshai.config.model import Endpoint
from meshai.errors import CheckFailedError, MeshAIError, ModelError, ModelKeyError, UsageError
from meshai.llm.keys import NO_KEY, keys_for
from meshai.llm.places import leaves_house, shown
from meshai.setup import models
from meshai.setup.answers import Answers, model_url
from meshai.setup.console import Console, printable
from meshai.setup.existing import Existing, Options
from meshai.setup.models import Offered, Trial

NONE = "none"
SHOWN = 40


class AgainError(Exception):
    """Back to the choice of the server."""


class ModelStep:
    """Fills the endpoint into ``answers``."""

    def __init__(self, console: Console, options: Options, existing: Existing, answers: Answers, clock: Clock) -> None:
        self._console = console
        self._options = options
        self._before = existing.settings.llm.endpoints
        self._is_new = existing.is_new
        self._answers = answers
        self._clock = clock
        self._key: SecretStr = NO_KEY

    def run(self) -> None:
        """Ask until a model answered, or the operator wants it all the same. Without questions: raises MeshAIError."""
        self._console.head("The language model")
        if self._options.model_url is not None or not self._console.asks:
            self._from_options()
            return
        while True:
            try:
                self._ask()
            except AgainError:
                continue
            return

    def _from_options(self) -> None:
        options, url = self._options, self._options.model_url
        if url == NONE:
            self._without()
            return
        if url is None:
            if options.model is not None or options.api_key_file is not None:
                raise UsageError("--model and --api-key-file belong to --model-url")
            if self._is_new:
                raise UsageError("which model? Give --model-url URL (and --model NAME), or --model-url none")
            self._console.say("  stays as it is in the file")
            return
        url = model_url(url)
        self._take_key(url)
        if options.no_check:
            self._use(url, options.model or _missing_model([]))
            return
        offered = asyncio.run(models.offered(url, self._key, self._clock))
        names = offered.models
        model = options.model or (names[0] if len(names) == 1 else _missing_model(names))
        self._use(offered.base_url, model)
        self._show(self._try(self._endpoint()))

    def _ask(self) -> None:
        """One round; raises AgainError."""
        console = self._console
        console.say("  Looking for servers on this computer ...")
        nearby = asyncio.run(models.nearby(self._clock))
        options = [f"{server.name} at {shown(server.base_url)} ({len(server.models)} models)" for server in nearby]
        options += ["another address, in the house or in a cloud", "none: built-in answers about Meshtastic only"]
        keep = (
            []
            if self._is_new or not self._before
            else [f"keep {self._before[0].model} at {shown(self._before[0].base_url)}"]
        )
        picked = console.choose("Which one", [*keep, *options]) - len(keep)
        if picked < 0:
            console.say("  stays as it is in the file")
        elif picked == len(options) - 1:
            self._without()
        else:
            offered = nearby[picked] if picked < len(nearby) else self._ask_address()
            self._pick(offered)

    def _ask_address(self) -> Offered:
        url = self._console.ask("Address, like http://192.168.1.10:11434/v1", model_url)
        self._take_key(url)
        while True:
            self._console.say(f"  Asking {shown(url)} ...")
            try:
                return asyncio.run(models.offered(url, self._key, self._clock))
            except ModelKeyError as error:
                self._console.warn(f"{error}.")
                self._ask_key()
            except ModelError as error:
                self._console.warn(f"That did not work: {error}")
                raise AgainError from None

    def _ask_key(self) -> None:
        key = self._console.secret("The key (not shown; Enter alone goes back)")
        if not key:
            raise AgainError
        try:
            endpoint = Endpoint(name="server", base_url="http://x", model="x", api_key=SecretStr(key))
            self._key = keys_for([endpoint], {})[0]
        except UsageError:
            self._console.warn("that is not one key: there are spaces or foreign letters in it")
            self._ask_key()
            return
        self._answers.key = self._key.get_secret_value()

    def _pick(self, offered: Offered) -> None:
        console, names = self._console, offered.models
        if names:
            for number, name in enumerate(names[:SHOWN], 1):
                console.say(f"  {number:>2}  {name}")
            if len(names) > SHOWN:
                console.say(f"      ... and {len(names) - SHOWN} more")
        else:
            console.say("  The server does not list its models.")

        def chosen(text: str) -> str:
            text = text.strip()
            if text.isascii() and text.isdigit() and 1 <= int(text) <= len(names):
                return names[int(text) - 1]
            if not text or (names and text not in names):
                raise UsageError(
                    f"a number from 1 to {len(names)}, or a name from the list" if names else "a name, please"
                )
            return text

        model = console.ask("Which model (number or name)", chosen, "1" if names else "")
        self._use(offered.base_url, model)
        self._trial()

    def _trial(self) -> None:
        self._console.say(f'  Asking it: "{models.QUESTION}" (a model that is not loaded yet takes its time)')
        try:
            self._show(self._try(self._endpoint()))
        except ModelKeyError as error:
            self._console.warn(f"{error}.")
            self._ask_key()
            self._trial()
            return
        except ModelError as error:
            self._console.warn(f"No answer: {error}")
            if not self._console.confirm("Use it all the same", default=False):
                raise AgainError from None
            return
        if not self._console.confirm("Use this model", default=True):
            raise AgainError

    def _try(self, endpoint: Endpoint) -> Trial:
        return asyncio.run(models.attempt(endpoint, self._key, self._clock))

    def _show(self, trial: Trial) -> None:
        console = self._console
        speed = f", {trial.tokens_per_s:.0f} tokens/s" if trial.tokens_per_s else ""
        console.say(f'  It says: "{printable(trial.answer)[:400]}"')
        console.say(f"  first word after {trial.first_s:.1f} s, done after {trial.total_s:.1f} s{speed}; "
                    f"context {trial.context_tokens} tokens")  # fmt: skip
        if trial.total_s > 60:
            console.warn("That is slow for a conversation over radio; a smaller model answers sooner.")

    def _without(self) -> None:
        self._answers.no_model = True
        self._answers.base_url = self._answers.model = self._answers.api_key_file = None
        self._answers.key = ""
        self._console.say("  The bot answers from built-in texts and people's own messages, and says so.")

    def _use(self, url: str, model: str) -> None:
        self._answers.base_url, self._answers.model, self._answers.no_model = url, model, False
        if leaves_house(url):
            self._console.say("  What people write to the bot leaves the house; !about tells them so.")

    def _endpoint(self) -> Endpoint:
        assert self._answers.base_url is not None
        assert self._answers.model is not None
        kept = (
            self._before[0] if self._before and _same_server(self._before[0].base_url, self._answers.base_url) else None
        )
        extra = kept.extra_body if kept is not None else {}
        return Endpoint(name="setup", base_url=self._answers.base_url, model=self._answers.model, extra_body=extra)

    def _take_key(self, url: str) -> None:
        """The key for a server: of --api-key-file, of the file so far when it is the same server, or LLM_API_KEY."""
        self._answers.key, self._answers.api_key_file = "", None
        endpoint = Endpoint(name="server", base_url=url, model="x")
        if self._options.api_key_file is not None:
            path = self._options.api_key_file.expanduser().absolute()
            endpoint = endpoint.model_copy(update={"api_key_file": str(path)})
            self._answers.api_key_file = str(path)
        elif self._before and _same_server(self._before[0].base_url, url):
            endpoint = self._before[0]
        has_own = bool(endpoint.api_key_file or endpoint.api_key.get_secret_value())
        try:
            self._key = keys_for([endpoint], os.environ)[0]
            if self._key.get_secret_value() and not has_own:
                self._console.say("  The key of LLM_API_KEY is used. It is not written down: the daemon needs it, too.")
        except MeshAIError as error:
            if not self._console.asks:
                raise
            self._console.warn(str(error))
            self._key, self._answers.api_key_file = NO_KEY, None


def _same_server(one: str, other: str) -> bool:
    return urlsplit(one).netloc == urlsplit(other).netloc


def _missing_model(names: list[str] | tuple[str, ...]) -> str:
    listed = f": {', '.join(names[:SHOWN])}" if names else ""
    if names:
        raise CheckFailedError(f"the server offers several models, give one with --model{listed}")
    raise UsageError("give the name of the model with --model")
