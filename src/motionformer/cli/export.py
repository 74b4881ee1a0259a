"""`motionformer export`: weights become a file that runs without this package."""

from pathlib import Path
from typing import Annotated

import typer

from motionformer.cli.options import JsonOption, read_class_names
from motionformer.cli.report import plain_console, print_json, print_table


def export(
    model: Annotated[str, typer.Argument(help="Released name, or folder or file of weights.")],
    output: Annotated[Path, typer.Argument(help="The file to write; its suffix, .pt2, .onnx or .xml, is the format.")],
    frames: Annotated[int | None, typer.Option(help="Frames per clip.", show_default="the model's own")] = None,
    size: Annotated[
        int | None, typer.Option(help="Height and width of a clip, in pixels.", show_default="the model's own")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Text file of class names, one per line, to store in the exported file.")
    ] = None,
    openvino: Annotated[
        bool, typer.Option("--openvino", help="Write OpenVINO's OUTPUT.xml and OUTPUT.bin; as the suffix .xml does.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model as torch.export (.pt2), ONNX (.onnx) or OpenVINO (.xml), checked against PyTorch.

    The batch size stays open; frames and size are fixed in the file. The file is run (by onnxruntime, by OpenVINO) and
    compared with the model at several batch sizes; if any output differs by more than 0.0001, nothing is written.

    **Examples**

        motionformer export k400_motionformer_224_16x4 k400.onnx

        motionformer export weights/gestures gestures.onnx --labels gestures.txt

        motionformer export weights/gestures gestures-112.pt2 --frames 8 --size 112

        motionformer export weights/gestures gestures --openvino
    """
    from dataclasses import replace

    from motionformer.errors import ExportError
    from motionformer.export import export_model
    from motionformer.export.write import find_format
    from motionformer.weights import load_model

    if openvino and not output.suffix:
        output = output.with_suffix(".xml")
    find_format(output)
    if openvino and output.suffix != ".xml":
        raise ExportError(f"{output}: --openvino writes .xml; leave it out, or give a name without a suffix.")
    if output.exists() and not overwrite:
        raise ExportError(f"{output} exists: choose another name, or add --overwrite.")
    with plain_console(stderr=True).status("loading") as status:
        network = load_model(model, frames=frames, size=size)
        if labels is not None:
            names = read_class_names(labels, network.config.num_classes)
            network.config = replace(network.config, labels=names)
        status.update("tracing, writing and checking")
        report = export_model(network, output)
    if as_json:
        values = {
            "path": str(report.path),
            "sidecar": str(report.sidecar),
            "bytes": report.size,
            "tolerance": report.agreement.tolerance,
            "largest_difference": report.agreement.largest,
            "largest_output": report.agreement.largest_output,
            "differences": report.agreement.differences,
        }
        print_json(values)
        return
    rows = [(kind, f"{difference:.1e}") for kind, difference in report.agreement.differences.items()]
    print_table(("clips", "largest"), rows, title="difference from PyTorch", right=("largest",))
    console = plain_console()
    console.print(
        f"largest: {report.agreement.largest:.1e}, allowed {report.agreement.tolerance:g}; "
        f"outputs reach {report.agreement.largest_output:.2g}"
    )
    console.print(f"written: {report.path} ({report.size / 1e6:.1f} MB), {report.sidecar}")
