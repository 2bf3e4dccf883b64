"""Where to put k sensors, and which k of n runs to make. Needs the extra ``selection``."""

from ksubset._support.extras import require

for _package in ("matplotlib", "scipy", "sklearn"):
    require(_package, "selection")

from ksubset.design.optimal import DesignResult, optimal_design  # noqa: E402
from ksubset.design.plotting import plot_field  # noqa: E402
from ksubset.design.sensors import SensorSelector  # noqa: E402

__all__ = ["DesignResult", "SensorSelector", "optimal_design", "plot_field"]
