from .annotating import read_reports as read_reports, refuse_unready as refuse_unready
from .judging import judge_answers as judge_answers, judge_remarks as judge_remarks, refuse_unfit as refuse_unfit
