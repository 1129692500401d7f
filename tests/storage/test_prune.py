"""Old traffic goes, the archive and each person's newest answer stay."""

from meshai.storage import prune

DAY = 86400.0


async def test_old_traffic_goes_but_the_newest_answer_stays(tmp_path):
    from support.station import Station

    station = Station(tmp_path / "meshai.db")
    await station.start()
    for number in range(3):
        await station.dm(f"question {number}")
    await station.db.transaction(lambda tx: tx.execute("UPDATE answers SET created_at = created_at - ?", (40 * DAY,)))
    await station.db.transaction(lambda tx: tx.execute("UPDATE inbound SET received_at = received_at - ?", (40 * DAY,)))
    before = station.daemon.clock.now() - 30 * DAY
    assert await station.db.transaction(lambda tx: prune.traffic(tx, before=before)) == 2 + 3
    assert await station.db.fetch_value("SELECT count(*) FROM messages") == 6
    await station.dm("!again")
    assert station.texts()[-1] == "Answer 3."
    await station.stop()
