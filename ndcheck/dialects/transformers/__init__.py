"""Arguments of transformers' and TRL's trainers, as a file."""

from ndcheck.dialects.transformers.config import DIALECT

__all__ = ["DIALECT"]
