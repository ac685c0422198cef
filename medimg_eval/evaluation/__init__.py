"""Runs a model on a task: the Lightning modules, the run folder, resume, scoring.

What other models say of stored predictions is in `evidence`.
"""
