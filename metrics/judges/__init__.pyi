from .report_errors import green_score as green_score, read_green as read_green, verdict_reader as verdict_reader
from .verdicts import reader as reader, sentences as sentences
