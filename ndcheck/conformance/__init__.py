"""Conformance: train a small model under many layouts, and compare each with one process, tensor by tensor.

A *matrix* (a YAML file) lists *cells*. The *pool* runs each cell's ranks as processes forked from a server that has
torch imported; an *engine* trains and leaves a *record*; records are *compared* with those of the same
work in one process, within a *tolerance*; a difference is *diagnosed*. ``python -m ndcheck.conformance --help``.
"""

from __future__ import annotations
