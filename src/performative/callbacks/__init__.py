"""Callbacks, called between chunks of a run with the new records. Write your own as a function of the news:

    def show(news):
        print(news.round, news["consensus"][:, -1])

    pf.run(..., callbacks=[show])

A class may also have `begin(about, total)`, called before the first round, `close()`, always called at the end, `every`
(maximum number of rounds between calls) and `unprotected = True` (see `News`). `news.stop(reason)` ends the run.
Callbacks do not change a run's numbers; an error in one ends the run, with the checkpoint written just before.
"""

from performative.callbacks.csv_file import CSV
from performative.callbacks.news import News
from performative.callbacks.progress import Progress
from performative.callbacks.stop import Stop, Threshold
from performative.callbacks.trackers import MLflow, TensorBoard, WandB
from performative.callbacks.watching import Watching

__all__ = ["CSV", "MLflow", "News", "Progress", "Stop", "TensorBoard", "Threshold", "WandB", "Watching"]
