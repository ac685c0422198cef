from .cleaning import withheld as withheld
from .extraction import (
    extract as extract,
    extract_box as extract_box,
    extract_choice as extract_choice,
    extract_choices as extract_choices,
    extract_number as extract_number,
    extract_open as extract_open,
    extract_point as extract_point,
    extract_report as extract_report,
    extract_yes_no as extract_yes_no,
)
from .reply import (
    JUDGE as JUDGE,
    Read as Read,
    AnsweredQuestion as AnsweredQuestion,
    UNREAD as UNREAD,
    texts_among as texts_among,
)
from .rule_registry import rules as rules
from .structured import last_object as last_object
from .thoughts import SplitReply as SplitReply, split_thought as split_thought
