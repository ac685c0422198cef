from .meeting import (
    Course as Course,
    Meeting as Meeting,
    Speech as Speech,
    course_named as course_named,
    meeting_course as meeting_course,
)
from .meeting_task import MeetingQuestionTask as MeetingQuestionTask
