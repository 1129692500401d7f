"""The set-up from the first question to the first message. Nothing is written before the last question."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial

import click

from meshai.clock import Clock, SystemClock
from meshai.config.loader import load_settings
from meshai.errors import MeshAIError, UsageError
from meshai.ops import control
from meshai.radio.contact import contact_url
from meshai.radio.link import NodeInfo
from meshai.setup import answers as checks
from meshai.setup import edit, files, first_contact, pick_node, qr
from meshai.setup.answers import Answers
from meshai.setup.code import MAX_WRONG, VALID_S, OneTimeCode, Verdict
from meshai.setup.console import Console, printable
from meshai.setup.existing import Existing, Options, look
from meshai.setup.first_contact import Arrived
from meshai.setup.pick_model import ModelStep
from meshai.setup.pick_node import NodeStep

VERDICTS = {
    Verdict.WRONG: "that is not the code",
    Verdict.UNPROVEN: "six digits, but not protected by the node's key: not accepted. Scan the contact first",
    Verdict.OVER: "the code does not count any more",
}


class Wizard:
    """One run of ``meshai setup``."""

    def __init__(self, options: Options, env: Mapping[str, str] | None = None, clock: Clock | None = None) -> None:
        self._options = options
        self._env = os.environ if env is None else env
        self._clock = clock or SystemClock()
        self._console = Console(asks=not options.yes)
        self._answers = Answers()

    def run(self) -> bool:
        """Everything in order; True: the operator wants the service, now.

        Raises MeshAIError; Ctrl-C before the end leaves every file as it was.
        """
        self._check()
        existing = look(self._options.output, self._env)
        console = self._console
        console.say(f"MeshAI's configuration: {existing.path}" + (" (new)" if existing.is_new else ""))
        if console.asks:
            console.say("Ctrl-C ends this at any point; nothing is written before the last question.")
        step = NodeStep(console, self._options, existing, self._answers, self._clock)
        try:
            step.run()
            ModelStep(console, self._options, existing, self._answers, self._clock).run()
            self._people(existing)
            self._write(existing)
        except (KeyboardInterrupt, click.Abort):
            console.say("\nStopped. Nothing was written.")
            raise
        if step.node is not None:
            self._contact(existing, step, step.node)
        return self._next(existing)

    def _check(self) -> None:
        """Every flag is looked at before anything is asked or done."""
        options = self._options
        pick_node.check(options)
        if options.owner is not None:
            checks.owner(options.owner)
        if options.allow is not None:
            _allowed(options.allow)
        if options.model_url not in (None, "none"):
            checks.model_url(options.model_url)

    def _people(self, existing: Existing) -> None:
        console, options, settings = self._console, self._options, existing.settings
        console.head("People")
        if options.owner is not None:
            self._answers.owner = checks.owner(options.owner)
        elif console.asks:
            self._answers.owner = console.ask(
                "Whose bot is this? Shown by !about (name, call sign)", checks.owner, settings.bot.owner
            )
        if options.allow is not None:
            self._answers.allow = _allowed(options.allow)
        elif console.asks:
            self._ask_allowed(settings.access.allow)
        owner = settings.bot.owner if self._answers.owner is None else self._answers.owner
        allow = settings.access.allow if self._answers.allow is None else self._answers.allow
        console.say(f"  owner: {owner or '(nobody named)'}; may talk to it: {', '.join(allow) or 'everybody'}")

    def _ask_allowed(self, before: list[str]) -> None:
        console = self._console
        keep = [f"as it is: {', '.join(before)}"] if before else []
        picked = console.choose("Who may talk to it", [*keep, "everybody in reach", "only these nodes ..."]) - len(keep)
        if picked == 0:
            self._answers.allow = []
        elif picked == 1:
            self._answers.allow = console.ask("Their node ids, like !a1b2c3d4", _some_ids)

    def _write(self, existing: Existing) -> None:
        console, answers = self._console, self._answers
        console.head("The configuration")
        key_file = None
        if answers.key:
            key_file = files.key_file_for(existing.path)
            # systemd hands the service's key over as a credential; the service itself cannot read the file.
            answers.api_key_file = "" if files.is_for_service(existing.path) else str(key_file)
        changes = checks.changes(answers, existing.settings, existing.data)
        for path, value in changes.items():
            console.say(f"  {'.'.join(map(str, path))}: {edit.inline(value)}")
        if key_file is not None:
            console.say(f"  the model's key goes to {key_file} (mode 0600)")
        if not changes and not existing.is_new and key_file is None:
            console.say("  Nothing to change.")
            return
        text = edit.apply(existing.text, changes)
        if console.asks and not console.confirm(f"Write {existing.path}", default=True):
            raise click.Abort
        plan = files.Plan(existing.path, text, key_file, answers.key)
        files.write_all(plan, lambda path: load_settings(path, {}))
        console.say(f"  Written: {existing.path}")

    def _contact(self, existing: Existing, step: NodeStep, node: NodeInfo) -> None:
        show_contact(self._console, node)
        if self._options.no_wait:
            return
        try:
            self._first_contact(existing, step, node)
        except (KeyboardInterrupt, click.Abort):
            self._console.say("\n  Not waiting any longer. The configuration is written.")
        except MeshAIError as error:
            self._console.warn(f"The wait is over: {error}. The configuration is written.")

    def _first_contact(self, existing: Existing, step: NodeStep, node: NodeInfo) -> None:
        console, code = self._console, OneTimeCode(self._clock)
        minutes = f"{VALID_S / 60:.0f} minutes"
        console.head("The first message")
        console.say(
            "  To talk to the bot you need a second node, with the Meshtastic app on your phone. Scan the contact\n"
            "  with it, then send it a direct message."
        )
        if node.licensed:
            console.say(
                f"  Without keys nobody can become admin over the air. Waiting {minutes} (Ctrl-C skips this) ..."
            )
        else:
            console.say("  To become its admin (!admin pause, block, ...), send this number from your own node:\n")
            console.say(f"      {click.style(code.digits, bold=True)}\n")
            console.say(f"  It counts for {minutes} and {MAX_WRONG} wrong tries. Waiting (Ctrl-C skips this) ...")
        found = asyncio.run(self._wait(existing, step, code, until_code=not node.licensed))
        if found is not None:
            self._make_admin(existing, found)
        elif not code.left_s:
            console.say("  The number does not count any more. `meshai setup` gives a new one.")

    async def _wait(self, existing: Existing, step: NodeStep, code: OneTimeCode, *, until_code: bool) -> Arrived | None:
        wait = partial(first_contact.wait, code=code, show=self._show, until_code=until_code)
        if step.over_daemon and existing.daemon is not None:
            return await wait(first_contact.over_daemon(existing.daemon))
        async with first_contact.over_link(step.connection, self._clock) as source:
            return await wait(source)

    def _show(self, arrived: Arrived, verdict: Verdict) -> None:
        who = f"{arrived.node_id} {printable(arrived.name)}".rstrip()
        proof = "encrypted with its key" if arrived.public_key else "not protected by a key"
        text = "the code" if verdict is Verdict.RIGHT else printable(arrived.text)
        self._console.say(f"  > {who}: {text}   ({proof})")
        if verdict in VERDICTS:
            self._console.warn(VERDICTS[verdict])

    def _make_admin(self, existing: Existing, found: Arrived) -> None:
        fresh = look(existing.path, self._env)
        admins = checks.with_admin(fresh.settings.access.admins, found.node_id, found.base64_key)
        text = edit.apply(fresh.text, {("access", "admins"): admins})
        files.write(existing.path, text.encode("utf-8"), lambda path: load_settings(path, {}))
        self._console.say(f"  {found.node_id} is an admin now, with its key (access.admins in {existing.path}).")
        if fresh.settings.access.allow and found.node_id not in fresh.settings.access.allow:
            self._console.warn(f"{found.node_id} is not in access.allow, so the bot does not answer it.")

    def _next(self, existing: Existing) -> bool:
        console, for_service = self._console, files.is_for_service(existing.path)
        console.head("What is next")
        if existing.daemon is not None:
            console.say("  The running daemon takes the new settings over when it is started again:")
            console.say(f"    {'sudo systemctl restart meshai' if for_service else restart(existing)}")
            return False
        console.say(f"  Try it in the foreground:     meshai run -c {existing.path}")
        if not for_service:
            console.say("  As a service it reads /etc/meshai/config.yaml: run `sudo meshai setup` for that one,")
            console.say(f"  then {service_command()}")
            return False
        console.say(f"  As a service, from now on:    {service_command()}")
        return console.asks and os.geteuid() == 0 and console.confirm("Install the service now", default=False)


def show_contact(console: Console, node: NodeInfo) -> None:
    """The own node's contact as link and QR code."""
    url = contact_url(node)
    console.head("The bot's contact, for the Meshtastic app (scan it, or open the link on the phone)")
    console.say()
    art = qr.half_blocks(url, colour=console.colour)
    width = len(qr.matrix(url))
    if not console.can_draw:
        console.say("  (this terminal cannot show a QR code)")
    elif console.columns < width:
        console.say(f"  (the QR code needs a terminal {width} columns wide)")
    else:
        console.say(art)
    console.say(f"\n{url}")


def service_command() -> str:
    """What installs the service, with a full path: root's PATH is another one."""
    from meshai.ops.install import sudo

    return sudo("install")


def restart(existing: Existing) -> str:
    """How to end a daemon that no service started."""
    assert existing.daemon is not None
    try:
        pid = control.call(existing.daemon, "status")["pid"]
    except MeshAIError:
        pid = "PID"
    return f"kill {pid}; meshai run -c {existing.path}"


def _allowed(text: str) -> list[str]:
    return [] if text.strip().lower() in ("", "everyone", "everybody", "all") else checks.node_ids(text)


def _some_ids(text: str) -> list[str]:
    found = checks.node_ids(text)
    if not found:
        raise UsageError("at least one node id, please")
    return found
