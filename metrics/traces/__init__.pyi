from .tools import (
    lcs_length as lcs_length,
    same_arguments as same_arguments,
    shared_calls as shared_calls,
)
from .steps import expected_call as expected_call
