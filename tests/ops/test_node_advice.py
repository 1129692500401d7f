"""What is wrong with the own node is said, with its fix."""

from dataclasses import replace

from support.inbox_world import BOT

from meshai.config.model import Settings
from meshai.ops.node_advice import HAM_MODE, node_problems

FINE = replace(BOT, region="EU_868", public_key=bytes(32))


def test_a_well_set_node_has_no_problems():
    assert node_problems(FINE, Settings()) == []
    assert node_problems(None, Settings()) == []


def test_ham_mode_is_a_problem_only_with_required_pki():
    ham = replace(FINE, licensed=True)
    assert node_problems(ham, Settings()) == [HAM_MODE]
    assert node_problems(ham, Settings.model_validate({"access": {"require_pki": False}})) == []


def test_unset_region_and_missing_key_are_named():
    problems = node_problems(replace(FINE, region="UNSET", public_key=None), Settings())
    assert ["region" in problems[0], "public key" in problems[1]] == [True, True]


def test_unknown_and_public_channels_are_named():
    settings = Settings.model_validate({"channels": [{"name": "nope"}, {"name": "LongFast"}, {"name": "bot"}]})
    problems = node_problems(FINE, settings)
    assert [("nope" in p, "LongFast" in p) for p in problems] == [(True, False), (False, True)]
