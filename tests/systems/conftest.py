"""Chains of commands as a fixture."""

from tests.helpers.system_chains import run_chain

__all__ = ["run_chain"]
