"""Models as Hugging Face `transformers` expects them: configuration, model and processor, found by its Auto classes.

    import motionformer.hf
    pipeline("video-classification", model="folder")("clip.mp4")

Importing this registers the three classes. Clips are read by `ClipReader`, with the frames that `Predictor` takes.
Needs the extra `hf`, and no torchvision.
"""

try:
    from transformers import AutoConfig, AutoModelForVideoClassification

    # not from the package itself, which hides it where torchvision is missing
    from transformers.models.auto.video_processing_auto import AutoVideoProcessor
except ImportError as error:
    raise ImportError(
        "motionformer.hf needs transformers: pip install 'motionformer[hf]', in a checkout "
        "pip install -c constraints.txt -e '.[hf]'."
    ) from error

from motionformer.hf.model import MotionformerConfig, MotionformerForVideoClassification
from motionformer.hf.processor import MotionformerVideoProcessor
from motionformer.models.hub import MODEL_TYPE

__all__ = ["MotionformerConfig", "MotionformerForVideoClassification", "MotionformerVideoProcessor"]

AutoConfig.register(MODEL_TYPE, MotionformerConfig, exist_ok=True)
AutoModelForVideoClassification.register(MotionformerConfig, MotionformerForVideoClassification, exist_ok=True)
AutoVideoProcessor.register(MotionformerConfig, MotionformerVideoProcessor, exist_ok=True)
