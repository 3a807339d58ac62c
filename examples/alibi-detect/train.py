"""Creates a drift detector for heights and weights, and saves it."""

import numpy as np
from alibi_detect.cd import KSDrift
from alibi_detect.saving import save_detector

random = np.random.default_rng(5)
heights = random.normal(170, 10, 200)
people = np.stack([heights, heights - 100 + random.normal(0, 8, 200)], axis=1)
save_detector(KSDrift(people, p_val=0.05), "detector")
print("wrote detector")
