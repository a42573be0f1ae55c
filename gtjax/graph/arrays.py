"""Arrays of numpy, jax, torch and the like as numpy arrays on the host, without importing any."""

from __future__ import annotations

from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError


def host_array(field: str, value: Any) -> np.ndarray:
    """The values of an array, tensor or list; what is none of these breaks a rule of `field`."""
    found = type(value).__name__
    try:
        if hasattr(value, "detach"):  # a tensor of torch, maybe on a device or with a gradient
            value = value.detach().cpu().numpy()
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise GraphFormatError(field, "a rectangular array", found) from error
