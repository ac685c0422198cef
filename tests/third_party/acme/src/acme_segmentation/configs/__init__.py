"""Configs of a package that is not ours."""
