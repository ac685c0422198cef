"""What products need beside tables: plans, acceptance, control charts, labels of reports."""
