"""A stand-in for a tensor of torch: it gives its values only after detach, cpu and numpy."""

import numpy as np


class FakeTensor:
    """On a device, with a gradient: `np.asarray` of it fails, as it does with torch."""

    def __init__(self, values, ready=False):
        self._values, self._ready = np.asarray(values), ready

    def __len__(self):
        return len(self._values)

    def __array__(self, *args, **kwargs):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    def cpu(self):
        return FakeTensor(self._values, ready=True)

    def numpy(self):
        assert self._ready
        return self._values
