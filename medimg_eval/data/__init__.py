"""Cases to batches: layouts, and the data module that reads ahead in worker processes."""
