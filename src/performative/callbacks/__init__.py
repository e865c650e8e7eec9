"""Called between chunks of a run with what was recorded since. Your own is a function of the news:

    def show(news):
        print(news.round, news["consensus"][:, -1])

    pf.run(..., callbacks=[show])

A class may also have `begin(about, total)`, called before the first round, `close()`, called at the end whatever
happens, `every` (rounds between two calls, at most) and `unprotected = True` (see `News`). `news.stop(reason)` ends the
run. Callbacks change no number of a run; an error in one ends it, with the checkpoint as it was written just before.
"""

from performative.callbacks.csv_file import CSV
from performative.callbacks.news import News
from performative.callbacks.progress import Progress
from performative.callbacks.stop import Stop, Threshold
from performative.callbacks.trackers import MLflow, TensorBoard, WandB
from performative.callbacks.watching import Watching

__all__ = ["CSV", "MLflow", "News", "Progress", "Stop", "TensorBoard", "Threshold", "WandB", "Watching"]
