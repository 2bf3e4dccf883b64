"""Settings of stochastic neighbours on validation data: accuracy with k = 1, 5, 9, one seed.

Usage: python benchmarks/neighbours_tuning.py

Fashion-MNIST from the folder that KSUBSET_DATA names: the first 20,000 rows to train on, the first 5,000 of the
validation part.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from ksubset import LeaveOneOut
from ksubset.applications.neighbours import AtMean, NeighborSelector, class_shares, log_share, vote_error, wrong_share
from ksubset.experiments.datasets import load
from ksubset.training import Batch, JointTraining, Plan, seeded

LOSSES = {"share": wrong_share, "log": log_share, "vote": vote_error}
CLASSES, SIZE, DECAY = 10, 32, 1e-2
CASES: list[dict[str, Any]] = [
    {"loss": "cross-entropy"}, {"loss": "cross-entropy", "batch": 256}, {}, {"loss": "share"}, {"k": 1}, {"k": 9},
    {"temperature": 0.1}, {"temperature": 10.0}, {"loss": "share", "k": 1},
    {"estimator": LeaveOneOut(), "samples": 8}, {"temperature": 0.1, "steps": 700},
    {"batch": 64, "temperature": 0.1, "steps": 1800}, {"temperature": 0.1, "steps": 500, "rate": 3e-3},
    {"loss": "cross-entropy", "rate": 3e-3, "steps": 1500}, {"temperature": 1.0, "steps": 500, "rate": 3e-3},
    {"network": "convolutions", "temperature": 0.1, "steps": 400, "rate": 3e-3},
    {"network": "convolutions", "loss": "cross-entropy", "steps": 800, "rate": 3e-3},
    {"network": "convolutions", "temperature": 0.1, "steps": 400, "rate": 1e-3},
    {"network": "convolutions", "temperature": 0.1, "steps": 400, "rate": 2e-3},
    {"network": "convolutions", "loss": "cross-entropy", "steps": 400, "rate": 3e-3},
]  # fmt: skip


def new_embedding(kind: str) -> nn.Module:
    if kind == "perceptron":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, SIZE))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, SIZE),
    )  # fmt: skip


@torch.no_grad()
def accuracies(embedding: nn.Module, rows: Tensor, labels: Tensor, queries: Tensor, truth: Tensor) -> list[str]:
    points, others = (torch.cat([embedding(part) for part in x.split(1000)]) for x in (rows, queries))
    nearest = [labels[torch.cdist(part, points).topk(9, largest=False).indices] for part in others.split(1000)]
    votes = one_hot(torch.cat(nearest), CLASSES)
    return [f"{100 * (votes[:, :k].sum(1).argmax(1) == truth).float().mean():.2f}" for k in (1, 5, 9)]


def train(rows: Tensor, labels: Tensor, **case: Any) -> nn.Module:
    steps, batch, rate = case.get("steps", 1000), case.get("batch", 128), case.get("rate", 1e-3)
    loss, k = case.get("loss", "log"), case.get("k", 5)
    with seeded(0):
        embedding = new_embedding(case.get("network", "perceptron"))
        if loss == "cross-entropy":
            network = nn.Sequential(embedding, nn.Linear(SIZE, CLASSES))
            optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=DECAY)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            generator = torch.Generator().manual_seed(0)
            for _ in range(steps):
                chosen = torch.randperm(len(rows), generator=generator)[:batch]
                value = cross_entropy(network(rows[chosen]), labels[chosen])
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
                schedule.step()
            return embedding
        selector = NeighborSelector(k, embedding, case.get("temperature", 1.0), validate_args=False)
        plan = Plan(
            steps, selector={"lr": rate, "weight_decay": DECAY}, network={}, num_samples=case.get("samples", 1),
            cosine=True, optimizer=torch.optim.AdamW,
        )  # fmt: skip
        training = JointTraining(selector, nn.Identity(), case.get("estimator", AtMean()), plan)

        def draw() -> Batch:
            chosen = torch.randperm(len(rows), generator=training.generator)[:batch]
            own = labels[chosen]
            members = one_hot(own, CLASSES).float()
            return Batch(lambda z: LOSSES[loss](class_shares(z, members, k), own), inputs=(rows[chosen],))

        for _ in training.run(draw):
            pass
    return embedding


def main() -> None:
    data = load("fashion-mnist")
    rows, labels = data.train_images[:20_000], data.train_labels[:20_000]
    queries, truth = data.validation_images[:5000], data.validation_labels[:5000]
    print("pixels", *accuracies(nn.Identity(), rows, labels, queries, truth))
    for case in CASES:
        start = time.process_time()
        embedding = train(rows, labels, **case)
        seconds = time.process_time() - start
        print(case, f"{seconds:.1f} s", *accuracies(embedding, rows, labels, queries, truth), flush=True)


if __name__ == "__main__":
    main()
