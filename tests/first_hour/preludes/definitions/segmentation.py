"""Two label maps of livers with spleens, and probabilities of the first."""

import numpy as np

reference, prediction = np.zeros((2, 20, 20, 10), np.uint8)
reference[4:12, 4:12, 2:8], reference[14:18, 4:8, 2:8] = 1, 2
prediction[5:12, 4:12, 2:8], prediction[14:18, 5:8, 2:8] = 1, 2
foreground = np.clip((reference == 1) * 0.8 + 0.1, 0, 1)
probabilities = np.stack([1 - foreground, foreground])
