from .kinds import PROGRAMS as PROGRAMS, read_logs as read_logs
from .nnunet_summary import is_nnunet as is_nnunet, write_nnunet as write_nnunet
from .records import (
    Log as Log,
    LogRecord as LogRecord,
    matched as matched,
    write_disagreements as write_disagreements,
    write_lines as write_lines,
    write_records as write_records,
)
