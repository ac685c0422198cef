from .csv_cells import frame_to_csv as frame_to_csv
from .external import load_scores as load_scores
from .loading import (
    MANIFEST as MANIFEST,
    RunScores as RunScores,
    SCHEMA as SCHEMA,
    SCHEMAS as SCHEMAS,
    SCORE_COLUMNS as SCORE_COLUMNS,
    load_runs as load_runs,
    read_manifest as read_manifest,
    refuse_other_salts as refuse_other_salts,
    salt_names as salt_names,
    subset_key as subset_key,
    usage_in_all as usage_in_all,
)
from .metric_kinds import (
    SET as SET,
    WHOLE as WHOLE,
    is_evidence as is_evidence,
    is_known as is_known,
    is_set as is_set,
    is_summary as is_summary,
    judged_labels as judged_labels,
    needed_rows as needed_rows,
)
from .subsets import SetRow as SetRow, labels_of as labels_of, row_of_part as row_of_part, set_rows as set_rows
from .subsets import strata_of as strata_of, stratifying as stratifying
from .subsets import (
    Bins as Bins,
    CONDITION as CONDITION,
    LABEL as LABEL,
    Part as Part,
    UNKNOWN as UNKNOWN,
    attribute_names as attribute_names,
    attributes as attributes,
    crossed_attributes as crossed_attributes,
)
from .loading import left_out as left_out, list_sweeps as list_sweeps, listed as listed
from .validation import keep_validation as keep_validation, validation_notes as validation_notes
