from .tables import Llava as Llava, R2Gen as R2Gen
from .studies import Studies as Studies
from .tables import ReportTable as ReportTable
from .timelines import PatientTimelines as PatientTimelines
