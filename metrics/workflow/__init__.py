"""What is said of the frames of a video: one confusion matrix per video, segments, average precision, onsets, spans.

`frame_counts`, `segments`, `presence`, `time_spans` and `tracking` are functions of arrays; `published` holds scores of
single challenges with their faults; `metrics` registers what a `WorkflowTask` is judged by.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
