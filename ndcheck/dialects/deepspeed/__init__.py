"""DeepSpeed's JSON config."""

from ndcheck.dialects.deepspeed.config import DIALECT

__all__ = ["DIALECT"]
