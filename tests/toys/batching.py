"""A toy batching: every other step learns from the nodes with even numbers, the rest from odd."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Turns:
    whole: object
    partition_id: str
    even_n: object

    def at(self, step):
        weight_n = self.even_n if step % 2 else 1 - self.even_n
        return self.whole._replace(weight_n=weight_n)

    def changes(self, step):
        return True

    def span(self, step):
        return 1

    def facts(self, step):
        return {"even": float(step % 2)}


@dataclass(frozen=True)
class EvenAndOdd:
    name: str = "even_and_odd"
    sees_all: bool = False
    reads_stored: bool = False

    def refusal(self, spread, couples_nodes):
        return None

    def training(self, evaluation):
        return evaluation

    def make(self, whole, settings, training, progress=None):
        even_n = (whole.batch.inputs.node_ids_n % 2 == 0).astype(np.float32)
        return Turns(whole.batch, whole.partition.fingerprint, even_n)
