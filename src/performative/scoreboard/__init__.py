"""Strategic classification as a table: accuracy once people have reacted."""

from performative.scoreboard.making import scoreboard
from performative.scoreboard.result import COLUMNS, Line, Scoreboard, Way

__all__ = ["COLUMNS", "Line", "Scoreboard", "Way", "scoreboard"]
