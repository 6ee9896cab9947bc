# SPDX-License-Identifier: Apache-2.0
"""How the cost of a step grows with the batch and the vocabulary, by a fit, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

#: What a step may grow with, from the slowest to the fastest; each is added to a constant.
TERMS: dict[str, Callable[[Values, Values], Values]] = {
    "constant": lambda requests, _: 0 * requests,
    "linear in vocabulary": lambda _, vocabulary: vocabulary,
    "linear in batch": lambda requests, _: requests,
    "linear in batch x vocabulary": lambda requests, vocabulary: requests * vocabulary,
    "quadratic in batch": lambda requests, _: requests**2,
    "quadratic in batch x vocabulary": lambda requests, vocabulary: requests**2 * vocabulary,
}

#: A term that fits better by less than this part of the remaining error says nothing.
_BETTER = 0.75

#: Nor does one that fits better than this, as a part of the cost: launches of kernels take so much
#: more or less with the size of a batch, whatever it is that is launched.
_GOOD = 0.1


@attrs.frozen
class Growth:
    """A name out of :data:`TERMS`, and what was fitted."""

    name: str
    constant: float  #: seconds of a step, whatever is in it
    slope: float  #: seconds for each request, token of the vocabulary, or both
    error: float  #: of the fit, as a part of the cost: root mean square over the cells

    @property
    def rank(self) -> int:
        """How fast it grows: its place among :data:`TERMS`."""
        return list(TERMS).index(self.name)


def fit(cells: Sequence[tuple[int, int, float]]) -> Growth:
    """Return the slowest growth that explains what was measured.

    Args:
        cells: requests, vocabulary, and the seconds of a step with them.

    """
    # It comes with vLLM: reading what was measured needs none.
    import numpy as np

    requests, vocabulary, seconds = np.asarray(cells, dtype=np.float64).T
    fitted = [_fit(name, term(requests, vocabulary), seconds) for name, term in TERMS.items()]
    best = min(fitted, key=lambda growth: growth.error)
    return next(each for each in fitted if each.error <= max(best.error / _BETTER, _GOOD))


def _fit(name: str, term: Values, seconds: Values) -> Growth:
    """Fit one term and a constant, both at least zero, to the smallest relative error."""
    import numpy as np

    weights = 1 / seconds
    columns = np.stack([np.ones_like(term), term], axis=1)
    found, *_ = np.linalg.lstsq(columns * weights[:, None], seconds * weights, rcond=None)
    constant, slope = (float(value) for value in found)
    if constant < 0 or not term.any():
        constant, slope = _alone(term, seconds) if term.any() else _flat(seconds)
    elif slope < 0:
        constant, slope = _flat(seconds)
    error = np.abs(constant + slope * term - seconds) * weights
    return Growth(name, constant, slope, float(np.sqrt(np.mean(error**2))))


def _alone(term: Values, seconds: Values) -> tuple[float, float]:
    share = term / seconds
    return 0.0, float(share.sum() / (share**2).sum())


def _flat(seconds: Values) -> tuple[float, float]:
    return float((1 / seconds).sum() / (1 / seconds**2).sum()), 0.0
