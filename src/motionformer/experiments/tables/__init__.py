"""The experiments of the paper (docs/reproduction.md), as rows of recipes, and what can be asked of one. A new
experiment is a new entry here.

`cpu` rows are the same comparison on the motion benchmark with a tiny model; `paper` rows are the published recipes,
which need the published data (`data.train=…`) and GPUs. What is more than a table of recipes has a module of its own
(`studies.py`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from difflib import get_close_matches
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

from motionformer.errors import RecipeError

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Row:
    """One line of a table: a recipe and what is changed in it."""

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    group: str = ""  # lines of a figure
    x: float | None = None  # the position of a point on such a line
    published: str = ""  # the recipe, in the folder of each data set, whose header has the paper's result


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    id: str
    title: str
    needs: str  # data of the original
    cpu: tuple[Row, ...] = ()
    paper: tuple[Row, ...] = ()
    x_label: str = ""  # where rows are points of lines
    here: str = ""  # what is compared at the scale of a CPU, where it is no table of recipes
    published: str = ""  # what the paper found, where that is not the result of a row

    @property
    def name(self) -> str:
        """As in the paper: T3a."""
        return self.id.capitalize()


def find_experiment(name: str) -> Experiment:
    """By id, in any case."""
    found = EXPERIMENTS.get(name.lower())
    if found is None:
        close = get_close_matches(name.lower(), EXPERIMENTS, n=1, cutoff=0.3)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise RecipeError(f"there is no experiment {name!r}.{hint} There are: {', '.join(EXPERIMENTS)}.")
    return found


@dataclass(frozen=True)
class Request:
    """`tell` is called with a line whenever a part is done."""

    out: Path
    scale: Literal["cpu", "paper"] = "cpu"
    seeds: int = 3
    rows: str = ""  # only rows whose name holds this text
    data: Path | None = None  # the user's own, instead of what is built in
    changes: tuple[str, ...] = ()  # key=value
    processes: int = 1
    threads: int = 1
    train: bool = True  # False: collect what is there
    command: str = ""
    tell: Callable[[str], object] = str  # shows nothing

    @property
    def data_name(self) -> str:
        """What the data are called in tables: a folder's whole name, a file's without its ending; empty if built in."""
        if self.data is None:
            return ""
        path = self.data.resolve()
        return path.name if path.is_dir() else path.stem

    def check_one_process(self) -> None:
        """For an experiment whose rows are computed one after the other."""
        if self.processes > 1:
            raise RecipeError("the rows of this experiment are computed one after the other: leave --processes out.")

    def choose(self, names: Iterable[str]) -> list[str]:
        """The rows asked for, of those with these names; none is an error that lists them."""
        there = list(names)
        chosen = [name for name in there if self.rows in name]
        if not chosen:
            raise RecipeError(f"no row has {self.rows!r} in its name; there are: {'; '.join(there)}.")
        return chosen

    def options(self, **defaults: int | float | str) -> dict[str, Any]:
        """`changes` of an experiment that is no recipe: its few settings, each of the type of its default."""
        chosen: dict[str, Any] = dict(defaults)
        for change in self.changes:
            key, equals, value = change.partition("=")
            if not equals or key not in chosen:
                raise RecipeError(f"{change!r}: this experiment takes {', '.join(f'{name}=…' for name in defaults)}.")
            chosen[key] = value if isinstance(defaults[key], str) else _number(change, value, defaults[key])
        return chosen

    def run(self, do: Callable[[_Item], _Made], jobs: Sequence[_Item]) -> Iterator[tuple[_Item, _Made]]:
        """Each job with what it gave, as they end, in `processes`; `do` and the jobs must be picklable. The first error
        stops the rest."""
        if self.processes == 1:
            yield from ((job, do(job)) for job in jobs)
            return
        context = get_context("spawn")  # a fork of a process with threads can hang
        with ProcessPoolExecutor(self.processes, mp_context=context) as pool:
            running = {pool.submit(do, job): job for job in jobs}
            try:
                yield from ((running[done], done.result()) for done in as_completed(running))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def no_finished_run(self) -> RecipeError:
        """The error of collecting what is not there."""
        return RecipeError(f"no finished run in {self.out / 'runs'}: without --collect they are trained.")


def _number(change: str, text: str, default: int | float | str) -> int | float:
    try:
        number: int | float = type(default)(text)  # type: ignore[assignment]
    except ValueError:
        number = 0
    if not 0 < number < math.inf:  # nor no number at all
        raise RecipeError(f"{change!r}: it takes a number above zero, such as {default}.")
    return number


def _on(*data: str, **labels: str) -> tuple[Row, ...]:
    """The same rows on several data sets."""
    return tuple(Row(f"{label}, {of}", f"{of}/{name}") for of in data for name, label in labels.items())


_HARD = "motion/hard"
_SQUARE, _JOINT_POSITIONS = "model.changes.tubelet=1", "model.changes.positions=joint"
_SCHEMES = (("joint", f"{_HARD}-joint"), ("divided", f"{_HARD}-divided"), ("trajectory", _HARD))


def _row(label: str, recipe: str, published: str, *changes: str) -> Row:
    return Row(label, recipe, changes, published=published)


def _kernel(label: str, published: str, **options: object) -> Row:
    return _row(label, _HARD, published, *(f"model.changes.kernel.{key}={value}" for key, value in options.items()))


def _strided(recipe: str, scheme: str, stride: int) -> str:
    return recipe if stride == 1 else f"{_HARD}-{scheme}-stride-{stride}"


_ALL = (
    Experiment(
        "t2",
        "Tokens (square, cubic) and positions (separate, joint)",
        "K400, SSv2",
        cpu=(
            _row("joint attention, cubic, separate", f"{_HARD}-joint", "joint"),
            _row("joint attention, cubic, joint", f"{_HARD}-joint", "t2-joint-positions-joint", _JOINT_POSITIONS),
            _row("joint attention, square, separate", f"{_HARD}-joint", "t2-square-joint", _SQUARE),
            _row("trajectory attention, cubic, separate", _HARD, "base"),
            _row("trajectory attention, cubic, joint", _HARD, "t2-joint-positions-trajectory", _JOINT_POSITIONS),
            _row("trajectory attention, square, separate", _HARD, "t2-square-trajectory", _SQUARE),
        ),
        paper=tuple(
            Row(f"{name}, {of}", f"{of}/{name}")
            for of in ("k400", "ssv2")
            for name in (
                "joint",
                "base",
                "t2-square-joint",
                "t2-square-trajectory",
                "t2-joint-positions-joint",
                "t2-joint-positions-trajectory",
            )
        ),
    ),
    Experiment(
        "t3a",
        "Approximations of attention: Performer, Nyström, Orthoformer",
        "K400, SSv2",
        cpu=(
            _row("exact", _HARD, "base"),
            _kernel("Performer, 64 features", "t3a-performer", kind="performer", num_features=64),
            _kernel("Nyström, 16", "t3a-nystrom", kind="nystrom", num_prototypes=16),
            _kernel("Orthoformer, 16", "t3a-orthoformer", kind="orthoformer", num_prototypes=16),
        ),
        paper=_on("k400", "ssv2", base="exact", **{"t3a-performer": "Performer", "t3a-nystrom": "Nyström"})
        + _on("k400", "ssv2", **{"t3a-orthoformer": "Orthoformer"}),
    ),
    Experiment(
        "t3b",
        "How prototypes are chosen: orthogonal, random, segment means",
        "K400, SSv2",
        cpu=(
            _kernel("orthogonal", "t3a-orthoformer", kind="orthoformer", num_prototypes=16),  # the default: t3a's run
            _kernel("random", "t3b-random", kind="orthoformer", num_prototypes=16, choice="random"),
            _kernel("segments", "t3b-segments", kind="orthoformer", num_prototypes=16, choice="segments"),
        ),
        paper=_on(
            "k400", "ssv2", **{"t3a-orthoformer": "orthogonal", "t3b-random": "random", "t3b-segments": "segments"}
        ),
    ),
    Experiment(
        "t3c",
        "How many prototypes",
        "K400, SSv2",
        cpu=tuple(_kernel(f"r = {r}", "", kind="orthoformer", num_prototypes=r) for r in (4, 8, 16, 32)),
        paper=_on("k400", "ssv2", **{"t3c-16": "r = 16", "t3c-64": "r = 64", "t3a-orthoformer": "r = 128"}),
    ),
    Experiment(
        "t3d",
        "Prototypes shared over time, or of each frame",
        "K400, SSv2",
        cpu=(
            _kernel("shared", "t3a-orthoformer", kind="orthoformer", num_prototypes=16),
            _kernel("per frame", "t3d-per-frame", kind="orthoformer", num_prototypes=16, shared="false"),
        ),
        paper=_on("k400", "ssv2", **{"t3a-orthoformer": "shared", "t3d-per-frame": "per frame"}),
    ),
    Experiment(
        "t3m",
        "The memory column of table 3",
        "a GPU",
        here="training steps at base size, on a CPU",
    ),
    Experiment(
        "t4",
        "Joint, divided and trajectory attention; Avg_T and Norm_ST",
        "K400, SSv2",
        cpu=(
            _row("joint", f"{_HARD}-joint", "joint"),
            _row("divided", f"{_HARD}-divided", "divided"),
            _row("trajectory", _HARD, "base"),
            _row("trajectory, Avg_T", f"{_HARD}-avg-t", "t4-avg-t"),
            _row("trajectory, Norm_ST", f"{_HARD}-norm-st", "t4-norm-st"),
        ),
        paper=_on(
            "k400",
            "ssv2",
            joint="joint",
            divided="divided",
            base="trajectory",
            **{"t4-avg-t": "trajectory, Avg_T", "t4-norm-st": "trajectory, Norm_ST"},
        ),
    ),
    Experiment(
        "a1",
        "Accuracy against temporal stride",
        "K400, SSv2",
        cpu=tuple(
            Row(f"{scheme}, stride {stride}", _strided(recipe, scheme, stride), group=scheme, x=float(stride))
            for scheme, recipe in _SCHEMES
            for stride in (1, 2, 3, 4)
        ),
        paper=tuple(
            Row(
                f"{scheme}, stride {stride}, {of}",
                f"{of}/a1-{scheme}-stride-{stride}",
                group=f"{scheme}, {of}",
                x=float(stride),
            )
            for of, strides in (("k400", (2, 8, 16)), ("ssv2", (1, 2, 3)))
            for scheme, _ in _SCHEMES
            for stride in strides
        ),
        x_label="temporal stride, frames",
        published="a figure without numbers: the lead of trajectory attention grows with the stride, most on SSv2",
    ),
    Experiment(
        "a2",
        "One frame against eight: how much motion the data needs",
        "K400, SSv2",
        cpu=(
            _row("one frame", f"{_HARD}-single-frame", "a2-single-frame"),
            _row("eight frames", _HARD, "t2-square-trajectory"),
        ),
        paper=_on("k400", "ssv2", **{"a2-single-frame": "one frame", "t2-square-trajectory": "eight frames"}),
    ),
    Experiment(
        "t5",
        "Long Range Arena: exact, Performer, Nyström, Orthoformer",
        "LRA",
        here="short ListOps, or files of tasks",
        published="five tasks, and ListOps at its full length, where Orthoformer-64 did not come out here "
        "([Long Range Arena](lra.md#4-listops-itself))",
    ),
    Experiment(
        "a3",
        "Classes that gain and lose most",
        "SSv2",
        cpu=(_row("joint", f"{_HARD}-joint", ""), _row("trajectory", _HARD, "")),
        paper=_on("ssv2", joint="joint", base="trajectory"),
        here="trajectory against joint attention, class by class",
        published="a figure of the classes that gain and lose most; its numbers are not known here",
    ),
    Experiment(
        "a4",
        "Attention maps from a query point",
        "any video",
        cpu=tuple(
            _row(scheme, f"motion/easy{suffix}", "")
            for scheme, suffix in (("trajectory", ""), ("joint", "-joint"), ("divided", "-divided"))
        ),
        here="three schemes on a disc whose path is known",
    ),
    Experiment("a5", "Training cost and memory", "nothing", here="counts of every model"),
    Experiment(
        "a6",
        "DAVIS 2017: following objects from a first mask",
        "DAVIS 2017, K400 weights",
        here="discs, or a DAVIS folder",
        published="60.6 J&F on DAVIS 2017 val, with the weights of Kinetics-400",
    ),
    Experiment(
        "t6",
        "Against the state of the art: K400, K600, SSv2, EPIC-Kitchens-100",
        "K400, K600, SSv2, EPIC-Kitchens-100",
        paper=_on("k400", "k600", "ssv2", "epic", base="B", hr="HR", l="L"),
    ),
    Experiment("t7", "ViT-L/336 with Orthoformer, r = 196", "K400", paper=(Row("H, k400", "k400/h"),)),
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment for experiment in sorted(_ALL, key=lambda one: (one.id[0] != "t", one.id))
}
"""The paper's tables first, then its appendix."""
