"""What two threads do to the process while a landscape is compiled."""

import threading
import warnings

import numpy as np
import pytest

from performative.solve.landscape import View


def test_warnings_are_heard_after_two_threads_changed_who_hears_them():
    """Tracing may record warnings for a moment; where two threads do so at once, the last to end restores the wrong
    listener."""
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def value(x):
        with warnings.catch_warnings(record=True):
            first_in.set()
            assert second_in.wait(30)
        first_out.set()
        return 0.0, np.zeros(1)

    def slope(x):
        assert first_in.wait(30)
        with warnings.catch_warnings(record=True):
            second_in.set()
            assert first_out.wait(30)
        return np.zeros((1, 1))

    with pytest.warns(UserWarning, match="heard"):
        View(value, lambda gradient: gradient, slope).compiled(np.zeros(1))
        warnings.warn("heard", UserWarning, stacklevel=1)
