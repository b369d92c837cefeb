"""axolotl's config language."""

from ndcheck.dialects.axolotl.config import DIALECT, AxolotlConfig

__all__ = ["DIALECT", "AxolotlConfig"]
