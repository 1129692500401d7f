"""A day's tokens have an optional cap: one canned reply, then silence; commands go on."""

import pytest
from support.inbox_world import OTHER_KEY

from meshai.conversation.front import TOKENS_SPENT

SPEND = (
    "INSERT INTO token_ledger (day, node_id, calls, prompt_tokens)"
    " VALUES (date('now', 'localtime'), '!0000a001', 1, 900)"
)


@pytest.mark.parametrize(
    ("limits", "others"),
    [({"tokens_per_day": 900}, 1), ({"tokens_per_day_total": 900}, 0), ({"tokens_per_day": 901}, 1)],
)
async def test_spent_cap_is_said_once(start_station, limits, others):
    station = await start_station(limits=limits)
    await station.db.transaction(lambda tx: tx.execute(SPEND))
    await station.dm("hello?")
    await station.dm("hello??")
    spent = limits.get("tokens_per_day", 0) != 901
    assert station.texts() == [TOKENS_SPENT] if spent else len(station.texts()) == 2
    await station.dm("!ping")
    assert station.texts()[-1].startswith("pong")
    await station.dm("hello from another", node="!0000b002", key=OTHER_KEY)
    assert len(station.model.requests) == (others if spent else 3)
