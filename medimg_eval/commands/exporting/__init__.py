"""Runs in the formats of other programs, leaderboards and challenges, a module per kind of what is given away."""
