"""Does the distance between the two discs of our Pathfinder pictures give the answer away?

python -m benchmarks.lra_pathfinder

Prints how many of the scenes the best threshold on that distance gets right, chosen on the very same scenes: an upper
bound on this short cut. Half is chance.
"""

import argparse

import numpy as np

from motionformer.experiments.lra.pathfinder import _draw_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=400)
    count = parser.parse_args().scenes
    markers = [_draw_scene(bool(i % 2), np.random.default_rng((9, i)))[1] for i in range(count)]
    apart = np.array([np.linalg.norm(one - other) for one, other in markers])
    joined = np.arange(count) % 2 == 1
    shares = [float(np.mean((apart > limit) == joined)) for limit in apart]
    print(f"{max(*shares, 1 - min(shares)):.1%} of {count} scenes by distance alone")


if __name__ == "__main__":
    main()
