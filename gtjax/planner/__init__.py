"""Chooses strategy, mesh, partitioner and rematerialisation by price, and says why."""

from gtjax.planner.candidates import Option, meshes, options
from gtjax.planner.choose import make_plan
from gtjax.planner.cuts import GraphCuts, Parts, SupposedCuts
from gtjax.planner.plan import Candidate, Plan
from gtjax.planner.price import Locality, Price, price
from gtjax.planner.reasons import refuse_what_does_not_fit
from gtjax.planner.work import REMATS, ModelWork

__all__ = [
    "REMATS",
    "Candidate",
    "GraphCuts",
    "Locality",
    "ModelWork",
    "Option",
    "Parts",
    "Plan",
    "Price",
    "SupposedCuts",
    "make_plan",
    "meshes",
    "options",
    "price",
    "refuse_what_does_not_fit",
]
