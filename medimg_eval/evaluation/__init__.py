"""Runs a model on a task: the Lightning modules, the run folder, resume, evidence, scoring."""
