"""Plans: what runs when, and where its bytes are, all as data."""

from aicf.plan.data import Plan, Slot, StateSlot, Step
from aicf.plan.documents import load_plan, save_plan
from aicf.plan.planner import make_plan
from aicf.plan.verifier import verify

__all__ = ["Plan", "Slot", "StateSlot", "Step", "load_plan", "make_plan", "save_plan", "verify"]
