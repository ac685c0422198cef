"""Storms: each kind of process is killed at random moments, and the scores must be those of a quiet run."""
