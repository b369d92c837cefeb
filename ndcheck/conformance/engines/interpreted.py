"""What Triton's interpreter lacks. Imported only where TRITON_INTERPRET is set."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rsqrt(x):  # type: ignore[no-untyped-def]  # noqa: D103
    return tl.math.rsqrt(x)
