from .green import green_score as green_score, read_green as read_green
from .verdicts import reader as reader, sentences as sentences, verdict_reader as verdict_reader
