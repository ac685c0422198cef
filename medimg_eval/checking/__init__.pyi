from .describe_files import Description as Description, describe as describe
from .metric_readiness import ALL as ALL, Readiness as Readiness, check_metrics as check_metrics
from .question_records import how_to_get as how_to_get
from .task_cases import Finding as Finding, findings as findings
from .feature_stores import StoreDescription as StoreDescription, describe_features as describe_features
