"""Workers that give their results one by one."""

import joblib

__all__ = ["streaming"]


def streaming(kind: type[joblib.Parallel], n_jobs: int | None) -> joblib.Parallel:
    """Workers whose results come in order as soon as they are there; all at once where their backend cannot, as Ray's.

    Arguments:
        kind: `joblib.Parallel`, or scikit-learn's, which hands its configuration on.
        n_jobs: Calls at a time, as joblib has it.
    """
    streams = getattr(kind(n_jobs=n_jobs)._backend, "supports_return_generator", False)
    return kind(n_jobs=n_jobs, return_as="generator" if streams else "list")
