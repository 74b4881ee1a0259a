"""What the readout gives → logits (method.md §2). Logits always: softmax happens once, where views are averaged."""

from jaxtyping import Float
from torch import Tensor, nn

from motionformer.models.config import ActivationKind

ACTIVATIONS: dict[ActivationKind, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}


class Head(nn.Module):
    """Optional hidden layer, dropout, classifier; without classes it returns the features."""

    def __init__(self, dim: int, num_classes: int, hidden: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(dim, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x: Float[Tensor, "b c"]) -> Float[Tensor, "b k"]:
        return self.classifier(self.dropout(self.hidden(x)))  # type: ignore[no-any-return]


class MultiHead(nn.Module):
    """Several classifiers over the same features, by name: EPIC-Kitchens has `verb` and `noun`."""

    def __init__(self, dim: int, num_classes: dict[str, int], hidden: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.dropout = nn.Dropout(dropout)
        self.classifiers = nn.ModuleDict({name: nn.Linear(dim, k) for name, k in num_classes.items()})

    def forward(self, x: Float[Tensor, "b c"]) -> dict[str, Float[Tensor, "b _"]]:
        x = self.dropout(self.hidden(x))
        return {name: classifier(x) for name, classifier in self.classifiers.items()}


class HiddenLayer(nn.Module):
    """Linear and activation in front of the classifier."""

    def __init__(self, width: int, dim: int, activation: ActivationKind) -> None:
        super().__init__()
        self.fc = nn.Linear(width, dim)
        self.act = ACTIVATIONS[activation]()

    def forward(self, x: Float[Tensor, "b w"]) -> Float[Tensor, "b c"]:
        return self.act(self.fc(x))  # type: ignore[no-any-return]
