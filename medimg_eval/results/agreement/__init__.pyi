from .judges import Verdicts as Verdicts, read_verdicts as read_verdicts
from .judges import (
    judge_agreement as judge_agreement,
    numbers_of as numbers_of,
    read_jury as read_jury,
    verdicts_of as verdicts_of,
)
from .labelers import label_agreement as label_agreement
from .reader_study import GENERATED as GENERATED, ORIGIN as ORIGIN, REAL as REAL, read_readings as read_readings
from .reader_study import score_readers as score_readers
from .preferences import preference_table as preference_table, read_preferences as read_preferences
from .people_labels import (
    Compared as Compared,
    LabelValues as LabelValues,
    agreement_with_people as agreement_with_people,
)
from .calibration import calibration_table as calibration_table, rated_cases as rated_cases
from .jury import jury_table as jury_table, read_ballots_file as read_ballots_file
from .ratings import rating_table as rating_table, read_ratings as read_ratings
