"""Configs of that family."""
