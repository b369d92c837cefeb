"""accelerate's launch file."""

from ndcheck.dialects.accelerate.config import DIALECT

__all__ = ["DIALECT"]
