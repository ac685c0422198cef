"""Tools that models call: `tool` is one, `calls` carries them out beside the model, `protocols` put them into words."""

from medimg_eval.tools.calls import ToolCalls
from medimg_eval.tools.tool import Tool, ToolResult, failed_call, recording_key

__all__ = ["Tool", "ToolCalls", "ToolResult", "failed_call", "recording_key"]
