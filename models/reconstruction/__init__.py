"""Images from k-space: `linear` ways that need no training, and a `network` that `fit` trains."""
