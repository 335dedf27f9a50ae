"""Scores that several tests share, with the values that rliable 1.2.0 gives for them."""

import numpy as np

FIRST = np.array(  # (tasks, runs); rliable takes (runs, tasks)
    [
        [66.1, 61.9, 70.4, 58.3, 64.0, 69.2, 60.7],
        [47.3, 48.0, 46.8, 47.1, 47.9, 46.5, 48.4],
        [80.2, 20.5, 85.7, 78.9, 82.3, 15.0, 88.1],
    ]
)
SECOND = np.array([[59.3, 55.0, 61.9, 57.4, 49.8], [48.1, 48.4, 47.7, 48.6, 47.3], [70.2, 75.5, 68.8, 72.1, 66.0]])
RLIABLE = {
    "iqm": (58.38181818181818, 57.24444444444444),
    "mean of the first": 58.72857142857143,
    "optimality gap of the first, gamma 75": 18.185714285714276,
    "probability of improvement": 0.6142857142857143,
    "interval of the first, 50,000 resamples": (53.24545455, 64.84545455),
    "profile of the first at 20, 47, 60, 80": [0.95238095, 0.80952381, 0.52380952, 0.19047619],
}
GOOD = [60.0, 62.0, 58.0, 61.0, 63.0, 59.0, 64.0, 60.5, 61.5, 62.5]
BAD = [value - 20.0 for value in GOOD]
