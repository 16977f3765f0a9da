"""The speed of speculative decoding by the papers' formulas, for reports and predictions.

Leviathan et al. 2023, sections 3.1 and 3.3. The controller decides token by token and uses neither
function; see `localspec.policy.gain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from localspec.core.settings_schema import MAX_K


def expected_tokens(alpha: float, k: float) -> float:
    """E[tokens of a round] = (1 - alpha^(K+1)) / (1 - alpha).

    Leviathan et al. 2023, equation 1: K drafted tokens that are accepted independently with
    probability alpha each, and one token of the target.
    """
    return k + 1 if alpha >= 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def best_fixed(
    acceptance: Sequence[float], curve: Mapping[int, float], cost: float
) -> tuple[float, int]:
    """(Speed relative to plain decoding, K) of the best draft length for all rounds.

    Leviathan et al. 2023, section 3.3, with a measured curve in place of a cost ratio and
    acceptance by position: E[tokens | K] * t(1) / (t(K + 1) + K * cost). ``acceptance[i]`` is that
    of the i-th drafted token where it was verified, and the last one applies to all beyond;
    ``curve`` maps the width of a pass to seconds; ``cost`` is seconds per drafted token. K = 0 is
    plain decoding, so the ratio is at least 1.
    """
    widths = sorted(curve)
    best, chosen, emitted, reach = 1.0, 0, 1.0, 1.0
    for k in range(1, min(MAX_K, widths[-1] - 1) + 1):
        reach *= acceptance[min(k, len(acceptance)) - 1] if acceptance else 0.0
        emitted += reach
        seconds = float(np.interp(k + 1, widths, [curve[n] for n in widths])) + k * cost
        ratio = emitted * float(np.interp(1, widths, [curve[n] for n in widths])) / seconds
        if ratio > best:
            best, chosen = ratio, k
    return best, chosen
