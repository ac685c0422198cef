from .gains import suite_gains as suite_gains
from .rasch import (
    Rasch as Rasch,
    completed as completed,
    fit_rasch as fit_rasch,
    informative_models as informative_models,
)
from .seals import Seal as Seal, check_seal as check_seal, seal_run as seal_run
from .signal import (
    CheckpointSignal as CheckpointSignal,
    checkpoint_signal as checkpoint_signal,
    order_kept as order_kept,
)
from .subsets import TaskSubset as TaskSubset, representative_tasks as representative_tasks
from .windows import chance_corrected as chance_corrected, release_windows as release_windows
