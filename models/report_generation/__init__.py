"""A report generator that is trained here."""
