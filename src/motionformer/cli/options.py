"""Options that several commands share."""

from typing import Annotated

import typer


def _is_registered(name: str | None) -> str | None:
    """Looked up when given, not offered as fixed choices: `--help` waits for no PyTorch and no module of others."""
    if name is not None:
        from motionformer.attention import SCHEMES

        try:
            SCHEMES[name]
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return name


Attention = Annotated[
    str | None,
    typer.Option(
        callback=_is_registered,
        help="Who attends to whom: trajectory, joint, divided, or a registered scheme. Default: trajectory, or the "
        "weights' own.",
    ),
]
