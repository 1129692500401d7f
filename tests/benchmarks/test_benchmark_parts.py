"""The measurements run and return what the runner prints; no number is judged here."""

import json

import pytest

from benchmarks import __main__ as runner
from benchmarks import bench_fill, bench_soak, bench_start, bench_stream


def check_shape(measured):
    assert measured["rows"]
    for row in measured["rows"]:
        assert set(row) == {"what", "goal", "measured", "ok"}
        assert row["ok"] in (True, False, None)
    json.dumps(measured)


@pytest.mark.parametrize("part", [bench_fill, bench_start, bench_stream])
def test_part_runs_in_its_smallest_form(part):
    check_shape(part.main(["--quick"]))


def test_soak_counts_every_message():
    measured = bench_soak.main(["--messages", "100"])
    check_shape(measured)
    assert measured["data"]["answered"] == 150  # the warm-up included


def test_latency_measures_a_small_archive():
    from benchmarks import bench_latency

    measured = bench_latency.main(["--messages", "500", "--nodes", "5", "--questions", "8"])
    check_shape(measured)
    assert measured["data"]["request_ms"]["n"] == 8
    assert measured["data"]["request_ms"]["p50"] > 0


def test_runner_keeps_the_parts_that_were_not_run(tmp_path, capsys):
    output = tmp_path / "results.json"
    output.write_text('{"old": {"rows": []}}')
    assert runner.main(["fill", "--quick", "--output", str(output)]) in (0, 1)
    kept = json.loads(output.read_text())
    assert set(kept) == {"old", "fill"}
    assert "payload filled" in capsys.readouterr().out


def test_runner_names_the_parts_there_are(capsys):
    assert runner.main(["nonsense"]) == 2
    assert "latency" in capsys.readouterr().err


def test_part_that_fails_is_a_missed_goal(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "available", lambda: ["nonsense"])
    assert runner.main(["nonsense", "--output", str(tmp_path / "results.json")]) == 1
