from .sequences import (
    any_images as any_images,
    any_patients as any_patients,
    by_id as by_id,
    held as held,
    ids_of as ids_of,
    remembered as remembered,
    repeated_id as repeated_id,
)
from .stored_cases import StoredCases as StoredCases, StoredIds as StoredIds, open_cases as open_cases
from .trials import EachCase as EachCase, cases_of as cases_of, in_order as in_order, most_repeats as most_repeats
from .writing import CannotStoreError as CannotStoreError, write_cases as write_cases
