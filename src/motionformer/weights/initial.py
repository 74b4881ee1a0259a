"""Fill a model of a given architecture with the weights of another: a video model's, or an image model's."""

from motionformer.errors import CheckpointError
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.fit import PER_CLASS, LoadReport, fit_tensors
from motionformer.weights.image import load_image_weights, read_image_weights
from motionformer.weights.load import find_weights, is_video_model, load_model_with_report, short_name


def load_initial_weights(model: Motionformer, init_from: str) -> LoadReport:
    """Fill `model` with the weights of a video or an image model; the report lists what was loaded, resized and reset.

    The classifier is loaded only from a model with the same classes and scoring.

    Raises:
        CheckpointError: the weights cannot be read, or are of another architecture.
    """
    checkpoint = read_checkpoint(find_weights(init_from))
    try:
        if is_video_model(checkpoint):
            return _load_video_weights(model, init_from)
        weights, report = read_image_weights(str(checkpoint.path))
        load_image_weights(model, weights, report)
        return report
    except CheckpointError as error:
        shape = f"{model.config.attention}, {model.config.dim} wide, {model.config.depth} layers"
        raise CheckpointError(
            f"{error} The recipe's model ({shape}) cannot be initialised from {init_from}; change model.variant, "
            "model.changes or model.init_from."
        ) from error


def _load_video_weights(model: Motionformer, init_from: str) -> LoadReport:
    source, report = load_model_with_report(init_from)
    config = source.config
    tensors = source.state_dict()
    same_labels = None in (config.labels, model.config.labels) or config.labels == model.config.labels
    same_head = config.num_classes == model.config.num_classes and config.scoring == model.config.scoring
    left_out: list[str] = [] if model.config.hidden_head else ["head.hidden."]
    left_out += [] if same_labels and same_head else PER_CLASS
    left_out += [] if config.readout == model.config.readout else ["head.", "readout."]
    left_out += [] if "norm.weight" in model.state_dict() else ["norm."]  # it is in the readout of this model
    for name in [name for name in tensors if name.startswith(tuple(left_out))]:
        del tensors[name]
        report.dropped[name] = "the model has another head"
    _, rows, columns = config.grid
    table = (config.position_frames or config.grid[0], *(config.position_grid or (rows, columns)))
    may_reset = (
        "head.",
        "readout.",
        ".adapter.",
        ".kernel.projection",
        *(() if "norm.weight" in tensors else ("norm.",)),
    )
    fit_tensors(model, tensors, table, report, may_reset=may_reset)
    model.training_data = source.training_data or TrainingData(VideoSet(), unknown=(short_name(init_from),))
    return report
