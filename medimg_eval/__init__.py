"""medimg_eval: evaluate any medical-imaging model on any medical-imaging task, and end in a paper table."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("medimg-eval")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+uninstalled"
