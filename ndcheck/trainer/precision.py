"""Keep a float64 run in float64.

Models of transformers cast to float32 inside norms and routers, to protect bfloat16 runs. In a float64 run
those casts would round at 6e-8 in the middle of the network, and two layouts whose sums differ in the last of
53 bits could land on different sides of that rounding. So here such a cast, applied to a float64 tensor, does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DTYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "mixed": torch.float32,
}
"""Name of a precision -> torch's type of the weights."""


class KeepFloat64(TorchFunctionMode):
    """While active, casting a float64 tensor to float32 returns it unchanged."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype is torch.float64:
            if func is torch.Tensor.float:
                return args[0]
            args = (args[0], *(torch.float64 if value is torch.float32 else value for value in args[1:]))
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def compute_in(precision: str) -> AbstractContextManager[object]:
    """The context in which forward and backward passes of a ``precision`` run belong."""
    return KeepFloat64() if precision == "float64" else nullcontext()
