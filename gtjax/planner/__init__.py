"""Chooses strategy, mesh, partitioner and rematerialisation by price, and says why."""

from gtjax.planner.candidates import Option, meshes, options
from gtjax.planner.choose import make_plan
from gtjax.planner.cuts import GraphCuts, Parts, SupposedCuts
from gtjax.planner.memory import Memory, memory_of
from gtjax.planner.one_device import one_device_seconds, slower_than_one
from gtjax.planner.plan import Candidate, Plan
from gtjax.planner.price import Locality, Price, price
from gtjax.planner.reasons import refuse_what_does_not_fit
from gtjax.planner.step_work import Amount, OpCall, Work
from gtjax.planner.trace import trace_step

__all__ = [
    "Amount",
    "Candidate",
    "GraphCuts",
    "Locality",
    "Memory",
    "OpCall",
    "Option",
    "Parts",
    "Plan",
    "Price",
    "SupposedCuts",
    "Work",
    "make_plan",
    "memory_of",
    "meshes",
    "one_device_seconds",
    "options",
    "price",
    "refuse_what_does_not_fit",
    "slower_than_one",
    "trace_step",
]
