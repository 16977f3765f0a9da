"""Loads a pair in a thread that ends with the loading.

On the processor llama.cpp computes with OpenMP, which keeps a team of threads for every thread that
has computed, until that thread ends. Loading computes: it compares kernels and measures passes. Its
team and that of the scheduler would be more threads than there are processors. GNU's OpenMP then no
longer waits actively between two operations: its workers sleep and are woken some hundred times in
a pass, which takes half as long again (2 threads on 2 cores: 17 instead of 12 ms).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from localspec.core.interrupt import Cancelled
from localspec.core.options import Options
from localspec.loading.drafting import NO_TEXTS, EarlierTexts
from localspec.loading.loader import LoadedPair, load
from localspec.loading.resources import Progress


def load_in_thread(
    options: Options,
    on_event: Progress | None,
    cancelled: Cancelled | None,
    *,
    earlier: EarlierTexts = NO_TEXTS,
) -> LoadedPair:
    """Load a pair as `localspec.loading.loader.load` does. The thread calls ``on_event`` and
    ``cancelled``.

    Raises:
        LocalspecError: as `load`.
        KeyboardInterrupt: the user ended the program; nothing stays loaded.
    """
    given_up = threading.Event()

    def stopped() -> bool:
        return given_up.is_set() or (cancelled is not None and cancelled())

    with ThreadPoolExecutor(1, "localspec loading") as thread:
        loading = thread.submit(load, options, on_event, stopped, earlier=earlier)
        try:
            return loading.result()
        except BaseException:
            given_up.set()
            if loading.exception() is None:  # an interrupt came first
                loading.result().close()
            raise
