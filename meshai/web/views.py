"""What the operator reads: overview, nodes, conversations, memory, model calls, log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from meshai.config.model import NODE_ID
from meshai.radio.link import LinkState
from meshai.storage import answers, calls, conversations, delivery_counts, facts, messages, outbound, panels, summaries
from meshai.web import plots
from meshai.web.contact import contact
from meshai.web.history import EVERY_S, KEPT, Sample
from meshai.web.site import PAGE, Site, not_found, number_in

MOST_PLOTTED = 240
"""Points of a line: more than a phone has columns."""
FATES = ("delivered", "relayed", "sent", "failed")
LEVELS = {"all": logging.NOTSET, "warnings": logging.WARNING, "errors": logging.ERROR}
SHOWN_SUMMARIES = 60
PLOTTED_CALLS = 60


async def overview(site: Site, request: Request) -> Response:
    """Link, queue, airtime, and their day."""
    daemon = site.daemon
    now = site.clock.now()
    samples = site.history.samples
    waiting_keys = await panels.nodes_with_waiting_keys(site.reader)
    return await site.page(
        request,
        "overview.html",
        live="data state",
        up_s=site.clock.monotonic() - daemon.started_at,
        link=daemon.link.status(),
        is_up=daemon.link.state is LinkState.UP,
        node=daemon.link.node,
        contact=contact(daemon.link.node) if daemon.link.node is not None else None,
        waiting=daemon.responder.waiting,
        in_progress=daemon.responder.in_progress,
        delivery=daemon.sender.status(),
        air=daemon.governor.status(),
        model_label=daemon.model.label,
        model=daemon.model.status(),
        strategy=daemon.settings.memory.strategy,
        figures=await panels.counters(site.reader),
        problems=site.problems(),
        waiting_keys=waiting_keys,
        paused_s=daemon.pause.left_s,
        dropped=dict(daemon.inbox.counters.dropped),
        plots=[
            *_air_plots(site, samples),
            _fates_plot(await panels.fates_by_hour(site.reader, now=now)),
            _queue_plot(site, samples),
        ],
    )


async def nodes(site: Site, request: Request) -> Response:
    """Who is there."""
    words, offset = request.query_params.get("q", "").strip()[:60], number_in(request, "from")
    rows = await panels.nodes(site.reader, now=site.clock.now(), words=words, offset=offset, limit=PAGE + 1)
    return await site.page(
        request,
        "nodes.html",
        live="data",
        words=words,
        rows=rows[:PAGE],
        waiting=set(await panels.nodes_with_waiting_keys(site.reader)),
        newer=max(0, offset - PAGE) if offset else None,
        older=offset + PAGE if len(rows) > PAGE else None,
    )


async def node(site: Site, request: Request) -> Response:
    """One node: signal, keys, delivery, conversations, switches."""
    node_id = node_in(request)
    row = await panels.node(site.reader, node_id, now=site.clock.now())
    keys = await site.keys_of(node_id)
    if row is None and not keys:
        raise not_found()
    return await site.page(
        request,
        "node.html",
        live="data",
        node_id=node_id,
        row=row,
        keys=keys,
        rate=await delivery_counts.recent_rate(site.reader, node_id),
        talks=await panels.talks(site.reader, node_id=node_id),
    )


async def forget(site: Site, request: Request) -> Response:
    """Ask once more before everything of a node is erased."""
    node_id = node_in(request)
    talks = await panels.talks(site.reader, node_id=node_id)
    if not talks:
        raise not_found()
    return await site.page(request, "forget.html", node_id=node_id, talks=talks)


async def talks(site: Site, request: Request) -> Response:
    """Conversations, the latest first."""
    offset = number_in(request, "from")
    rows = await panels.talks(site.reader, offset=offset, limit=PAGE + 1)
    return await site.page(
        request,
        "conversations.html",
        live="data",
        rows=rows[:PAGE],
        newer=max(0, offset - PAGE) if offset else None,
        older=offset + PAGE if len(rows) > PAGE else None,
    )


async def talk(site: Site, request: Request) -> Response:
    """What was said, and what became of each answer's parts."""
    row = await _talk(site, request)
    before = number_in(request, "before")
    page = await messages.page(site.reader, row.id, before_seq=before or None, limit=PAGE)
    behind = await panels.answers_of(site.reader, [message.id for message in page if message.role != "user"])
    conv = await conversations.load(site.reader, row.id)
    return await site.page(
        request,
        "conversation.html",
        live="data",
        talk=row,
        conv=conv,
        page=page,
        behind=behind,
        earlier=page[0].seq if len(page) == PAGE else None,
        is_latest=not before,
    )


async def answer(site: Site, request: Request) -> Response:
    """One answer: the question, the parts with their receipts, the exact prompts."""
    row = await answers.get(site.reader, number_in(request, "answer", of_path=True))
    if row is None:
        raise not_found()
    latest = await answers.latest(site.reader, row.node_id, row.public_key)
    question = await panels.question(site.reader, row.inbound_id) if row.inbound_id is not None else None
    return await site.page(
        request,
        "answer.html",
        live="data",
        answer=row,
        question=question,
        parts=await outbound.of_answer(site.reader, row.id),
        calls=await calls.of_question(site.reader, row.inbound_id) if row.inbound_id is not None else [],
        may_repeat=latest is not None and latest.id == row.id,
    )


async def memory(site: Site, request: Request) -> Response:
    """What the bot keeps of a conversation: summaries, facts, and a search."""
    row = await _talk(site, request)
    conv = await conversations.load(site.reader, row.id)
    words = request.query_params.get("words", "").strip()[:200]
    every = (await summaries.every(site.reader, row.id))[-SHOWN_SUMMARIES:]
    active = {node.id for node in await summaries.chain(site.reader, row.id, conv.epoch)}
    known = await facts.every(site.reader, row.id)
    current = {fact.id for fact in await facts.current(site.reader, row.id)}
    return await site.page(
        request,
        "memory.html",
        live="data",
        talk=row,
        conv=conv,
        status=asdict(await site.daemon.memory.status(row.id)),
        active=[node for node in every if node.id in active],
        former=[node for node in reversed(every) if node.id not in active],
        facts=[(site.daemon.memory.fact_line(fact), fact) for fact in known if fact.id in current],
        former_facts=[(site.daemon.memory.fact_line(fact), fact) for fact in known if fact.id not in current][-PAGE:],
        words=words,
        hits=await site.daemon.memory.recall(row.id, words) if words else [],
    )


async def model_calls(site: Site, request: Request) -> Response:
    """Latency, tokens and cache of every call."""
    rows = await panels.calls(site.reader, before=number_in(request, "before"), limit=PAGE + 1)
    recent = await panels.calls(site.reader, limit=PLOTTED_CALLS)
    return await site.page(
        request,
        "calls.html",
        live="data",
        rows=rows[:PAGE],
        older=rows[PAGE - 1].id if len(rows) > PAGE else None,
        model=site.daemon.model.status(),
        model_label=site.daemon.model.label,
        plots=_call_plots(list(reversed(recent))),
    )


async def model_call(site: Site, request: Request) -> Response:
    """The exact prompt of a call."""
    found = await panels.call_prompt(site.reader, number_in(request, "call", of_path=True))
    if found is None:
        raise not_found()
    return await site.page(request, "call.html", call=found[0], prompt=calls.unpack(found[1]))


async def log_tail(site: Site, request: Request) -> Response:
    """The last lines."""
    chosen = request.query_params.get("level", "all")
    least = LEVELS.get(chosen, logging.NOTSET)
    return await site.page(
        request, "log.html", live="log", rows=site.tail.lines(least=least), chosen=chosen, levels=tuple(LEVELS)
    )


def node_in(request: Request) -> str:
    """The node id of the path."""
    text = str(request.path_params["node"]).lower()
    if not NODE_ID.fullmatch(text):
        raise not_found()
    return text


async def _talk(site: Site, request: Request) -> panels.TalkLine:
    row = await panels.talk(site.reader, number_in(request, "conversation", of_path=True))
    if row is None:
        raise not_found()
    return row


def _air_plots(site: Site, samples: list[Sample]) -> Iterable[plots.Plot]:
    settings, air = site.daemon.settings.airtime, site.daemon.governor.status()
    yield plots.lines(
        "Channel utilisation",
        "%",
        [
            _series(site, "everybody", samples, [sample.channel_percent for sample in samples]),
            _series(site, "this node", samples, [sample.transmit_percent for sample in samples]),
        ],
        limits=[("short answers", settings.slow_at_percent), ("commands only", settings.hold_at_percent)],
        least_top=10,
    )
    budget = min(100.0, settings.budget_percent, float(str(air["duty_cycle_percent"])))
    yield plots.lines(
        "Own airtime, rolling hour",
        "%",
        [_series(site, "used", samples, [sample.used_percent for sample in samples])],
        limits=[("budget", budget)] if budget < 100 else [],
        least_top=min(budget, 10.0),
    )


def _queue_plot(site: Site, samples: list[Sample]) -> plots.Plot:
    return plots.lines(
        "Waiting",
        "",
        [
            _series(site, "packets to send", samples, [sample.queued for sample in samples]),
            _series(site, "questions", samples, [sample.waiting for sample in samples]),
            _series(site, "held for absent nodes", samples, [sample.held for sample in samples]),
        ],
        least_top=5,
    )


def _fates_plot(hours: list[dict[str, int]]) -> plots.Plot:
    return plots.bars(
        "Packets an hour", "", FATES, [[float(hour.get(fate, 0)) for fate in FATES] for hour in hours], least_top=5
    )


def _series(site: Site, name: str, samples: list[Sample], values: Sequence[float | None]) -> plots.Series:
    """Place samples on the day's width; runs of samples become their greatest value."""
    now, width_s = site.clock.monotonic(), EVERY_S * KEPT
    step = max(1, -(-len(samples) // MOST_PLOTTED))
    points: list[tuple[float, float | None]] = []
    for first in range(0, len(samples), step):
        known = [value for value in values[first : first + step] if value is not None]
        last = samples[min(first + step, len(samples)) - 1]
        points.append((max(0.0, 1 - (now - last.at) / width_s), max(known) if known else None))
    return plots.Series(name, points)


def _call_plots(rows: list[panels.CallLine]) -> list[plots.Plot]:
    if not rows:
        return []
    left = f"{len(rows)} calls ago"
    return [
        plots.bars(
            "Time", "s", ("to the first token", "writing"),
            [[row.first_token_ms / 1000, max(0, row.ms - row.first_token_ms) / 1000] for row in rows],
            left=left, right="last",
        ),
        plots.bars(
            "Tokens", "", ("prompt from cache", "prompt, new", "answer"),
            [
                [
                    float(row.cached_tokens),
                    float(max(0, row.prompt_tokens - row.cached_tokens)),
                    float(row.completion_tokens),
                ]
                for row in rows
            ],
            left=left, right="last", least_top=100,
        ),
    ]  # fmt: skip
