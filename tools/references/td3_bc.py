"""Record a reference from the TD3+BC author's code: `python -m tools.references.td3_bc CHECKOUT`, of sfujim/TD3_BC."""

import torch

from tools.references.common import Recording, Source, main
from tools.references.td3 import KNOBS, record


def td3_bc(source: Source) -> Recording:
    """TD3+BC."""
    return record(source, "td3_bc", "TD3_BC.py", KNOBS | {"alpha": 1.5})


if __name__ == "__main__":
    main("sfujim/TD3_BC", [td3_bc], {"torch": torch.__version__})
