from .kinds import PROGRAMS as PROGRAMS, read_logs as read_logs
from .records import Log as Log, LogRecord as LogRecord, write_records as write_records
