"""How answers are judged: functions on arrays and strings, importable without torch."""
