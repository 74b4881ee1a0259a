"""`motionformer convert`: weights of any origin become a folder that `load_model` and the hub read."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from motionformer.cli.options import Attention, read_class_names
from motionformer.cli.report import plain_console


def convert(
    source: Annotated[
        str, typer.Argument(help="A released name or .pyth file, image weights, a folder of ours or of LoRA adapters.")
    ],
    target: Annotated[Path, typer.Argument(help="Folder to write: config.json and model.safetensors.")],
    num_classes: Annotated[
        int | None, typer.Option(min=0, help="Number of classes; resets the classifier.", show_default="the weights'")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(min=1, help="Frames; resizes the temporal position embedding.", show_default="the weights'"),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="Pixels; resizes the spatial position embedding.", show_default="the weights'"),
    ] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads, where the file does not tell.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A text file of class names, one per line, stored with the weights.")
    ] = None,
    from_image: Annotated[
        bool, typer.Option("--from-image", help="Initialise a video model from image weights.")
    ] = False,
    attention: Attention = None,
    inflation: Annotated[
        Literal["central", "average"] | None,
        typer.Option(help="With --from-image: which frames of a token the kernel sees.", show_default="central"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that is already there.")] = False,
) -> None:
    """Turn released or image weights into a folder of config.json and model.safetensors.

    **Examples**

        motionformer convert k400_motionformer_224_16x4 weights/k400

        motionformer convert ssv2_joint_224_16x4.pyth weights/ssv2-joint --labels ssv2_classes.txt

        motionformer convert runs/videos/lora weights/merged

        motionformer convert dinov2_vits14.safetensors weights/start --from-image --num-classes 5 --frames 8 --size 112
    """
    from dataclasses import replace

    from motionformer.errors import MotionformerError
    from motionformer.inference.classes import known_labels
    from motionformer.weights import from_image_weights, load_model_with_report

    if target.exists() and not overwrite and (not target.is_dir() or any(target.iterdir())):
        raise MotionformerError(f"{target} is already there: choose another folder, or add --overwrite.")
    if not from_image and (attention or inflation):
        raise MotionformerError("--attention, --inflation are for image weights: add --from-image or leave them out.")
    if from_image:
        model, report = from_image_weights(
            source,
            num_classes=400 if num_classes is None else num_classes,
            frames=frames or 16,
            size=size or 224,
            inflation=inflation or "central",
            attention=attention or "trajectory",
        )
    else:
        model, report = load_model_with_report(
            source, num_classes=num_classes, frames=frames, size=size, num_heads=heads
        )
    if labels is not None:
        model.config = replace(model.config, labels=read_class_names(labels, model.config.num_classes))
    elif not from_image:
        model.config = replace(model.config, labels=known_labels(source, model.config))
    model.save_pretrained(target)
    console = plain_console()
    console.print(str(report))
    console.print(f"written: {target} ({sum(f.stat().st_size for f in target.iterdir()) / 1e6:.1f} MB)")
