from .catalogue_lists import list_catalogue as list_catalogue, list_tasks as list_tasks, load_task as load_task
from .checks import check as check
from .checkpoints import (
    CheckpointScores as CheckpointScores,
    run_checkpoints as run_checkpoints,
    test_checkpoints as test_checkpoints,
)
from .displays import compare as compare, figure as figure, report as report, table as table
from .embedding import embed as embed, run_embedding as run_embedding
from .labelling import (
    Labelled as Labelled,
    cost_in_words as cost_in_words,
    label as label,
    run_labelling as run_labelling,
)
from .estimates import Estimate as Estimate, estimate_sheet as estimate_sheet, run_estimates as run_estimates
from .exchange import export as export, import_log as import_log
from .inspect_tasks import inspect_task as inspect_task
from .runs import (
    BELONGS as BELONGS,
    fit as fit,
    load_run as load_run,
    predict as predict,
    run_predictions as run_predictions,
    run_tests as run_tests,
    score as score,
    test as test,
    train_one as train_one,
)
