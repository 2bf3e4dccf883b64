"""Train a selector of subsets and a network on them: one step, one state, one seed."""

from ksubset.training.checkpoints import Checkpoint, load, save
from ksubset.training.joint import JointTraining
from ksubset.training.plan import Batch, Plan
from ksubset.training.rng import seeded

__all__ = ["Batch", "Checkpoint", "JointTraining", "Plan", "load", "save", "seeded"]
