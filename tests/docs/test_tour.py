"""The maintainers' tour follows the code."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
import round_picture


def test_the_picture_of_a_round_is_that_of_the_code():
    told = round_picture.PAGE.read_text(encoding="utf-8")
    assert round_picture.picture() in told, "make it again: python docs/_ext/round_picture.py"


def test_every_stage_asks_its_parts():
    opens, client, closes = map(round_picture.calls, round_picture.STAGES.values())
    assert "participation.select" in opens and "aggregator.aggregate" in closes
    assert client.index("population.deploy") < client.index("estimator.estimate") < client.index("channel.send")
