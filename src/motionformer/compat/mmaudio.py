"""The `Synchformer` that MMAudio and its successors carry with them, on this package's model: constructor,
`load_state_dict` and calls are theirs."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from motionformer.errors import CheckpointError
from motionformer.models import Motionformer
from motionformer.models.config import ModelConfig
from motionformer.weights.synchformer import VISUAL, convert_visual

__all__ = ["Synchformer"]


class Synchformer(nn.Module):
    """Visual features of Synchformer: `[b S 16 3 224 224] -> [b S 8 768]`.

    Args:
        config: of another size than the published file's. [default: its size]

    Example:
        ```python
        synchformer = Synchformer().eval()
        synchformer.load_state_dict(torch.load("synchformer_state_dict.pth", weights_only=True))
        synchformer(segments)
        ```
    """

    def __init__(self, config: ModelConfig | None = None) -> None:
        super().__init__()
        self.vfeat_extractor = Motionformer(config or VISUAL)

    def forward(self, vis: Float[Tensor, "b s t 3 H W"]) -> Float[Tensor, "b s f c"]:
        """Features of normalised segments of 16 frames at 25 per second."""
        return self.vfeat_extractor.sync_features(vis)

    def extract_vfeats(self, vis: Float[Tensor, "b s t 3 H W"], for_loop: bool = False) -> Float[Tensor, "b s f c"]:
        """The same; with `for_loop`, a segment of every video at a time, in less memory."""
        return self.vfeat_extractor.sync_features(vis, batch_size=len(vis) if for_loop else None)

    def load_state_dict(self, sd: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Tensors of the published file, of which those of the other parts are left out; or this class's own.

        Raises:
            RuntimeError: a tensor is missing, left over, or of another shape, as `torch.nn.Module` raises it.
        """
        visual = {name: value for name, value in sd.items() if name.startswith("vfeat_extractor.")}
        if "vfeat_extractor.readout.token" in visual:
            return super().load_state_dict(visual, strict=strict, assign=assign)
        try:
            ours = convert_visual(visual)[1]
        except CheckpointError as error:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}: {error}") from error
        named = {f"vfeat_extractor.{name}": value for name, value in ours.items()}
        return super().load_state_dict(named, strict=strict, assign=assign)
