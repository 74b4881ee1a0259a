"""Schemes and kernels of one's own: registered in one file, they work wherever a name is taken."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from einops import rearrange
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

from motionformer import (
    AttentionKernel,
    AttentionScheme,
    ModelConfig,
    create_model,
    from_image_weights,
    load_model,
    record_attention,
)
from motionformer.attention import KERNELS, SCHEMES, LayerRecord, contract, register_kernel, register_scheme
from motionformer.attention.contract import UnknownKindError
from motionformer.attention.projection import project_qkv
from motionformer.cli import app
from motionformer.data.motion import CLASSES, write_videos
from motionformer.errors import MotionformerError
from motionformer.finetuning.options import FinetuneOptions, Hardware, VideoFacts, finetune_recipe
from motionformer.models.block import Block
from motionformer.models.costs import measure, paper_macs
from motionformer.models.motionformer import Motionformer
from motionformer.tracing import compare, trace
from motionformer.training.model import build_config
from motionformer.training.recipe import make_recipe

CLIP = {"frames": 8, "size": 24}  # 4 frames of 3 × 3 patches
F, S, P, C, H = 4, 9, 1, 96, 4


class WindowAttention(AttentionScheme):
    """Every token attends to the prefix and to frames at most `radius` from its own; the prefix to everything."""

    options = ("radius",)

    def __init__(self, dim: int, num_heads: int = 8, *, radius: int = 1, **common: Any) -> None:
        super().__init__(dim, num_heads, **common)
        self.radius = radius
        self.scale = nn.Parameter(torch.ones(dim))  # something that no image model has

    def forward(self, x: Float[Tensor, "b n c"], frames: int) -> Float[Tensor, "b n c"]:
        p = self.num_prefix_tokens
        q, k, v = project_qkv(self.qkv, x, None, self.num_heads)
        patches = (rearrange(part[:, :, p:], "b h (f s) d -> b h f s d", f=frames) for part in (q, k, v))
        queries, keys, values = patches
        pieces = [self.kernel(q[:, :, :p], k, v)]
        for f in range(frames):
            near = slice(max(0, f - self.radius), f + self.radius + 1)
            seen = [torch.cat((a[:, :, :p], b[:, :, near].flatten(2, 3)), 2) for a, b in ((k, keys), (v, values))]
            pieces.append(self.kernel(queries[:, :, f], *seen))
        out: Tensor = self.proj(rearrange(torch.cat(pieces, 2), "b h n 1 d -> b n (h d)") * self.scale)
        return out

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        c, n = self.proj.in_features, frames * patches + num_prefix_tokens
        spans = [min(frames, f + self.radius + 1) - max(0, f - self.radius) for f in range(frames)]
        sizes = [(num_prefix_tokens, n), *((patches, num_prefix_tokens + span * patches) for span in spans)]
        return 4 * n * c * c + sum(self.kernel.macs(a, b, 1, self.num_heads, c // self.num_heads) for a, b in sizes)

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        first, *chunks = record.space_chunks  # of the prefix, then of each frame
        p, s, frames = self.num_prefix_tokens, chunks[0].shape[2], len(chunks)
        whole = first.new_zeros(self.num_heads, p + frames * s, p + frames * s)
        whole[:, :p] = first[0, :, :, 0]
        for f, chunk in enumerate(chunks):
            rows, start = slice(p + f * s, p + (f + 1) * s), p + max(0, f - self.radius) * s
            whole[:, rows, :p] = chunk[0, :, :, 0, :p]
            whole[:, rows, start : start + chunk.shape[-1] - p] = chunk[0, :, :, 0, p:]
        return whole


class SharpAttention(AttentionKernel):
    """Softmax of `sharpness` times the logits, one for each key frame."""

    options = ("sharpness",)

    def __init__(self, sharpness: float = 2.0) -> None:
        super().__init__()
        self.sharpness = sharpness

    def prepare(self, q: Tensor, k: Tensor, v: Tensor, frames: int, bias: Any = None, query_mask: Any = None) -> Any:
        keys, values = (rearrange(x, "b h (f s) d -> b h f s d", f=frames) for x in (k, v))

        def pool(q: Tensor) -> Tensor:
            logits = self.sharpness * torch.einsum("bhnd,bhfsd->bhnfs", q, keys) * q.shape[-1] ** -0.5
            return torch.einsum("bhnfs,bhfse->bhnfe", logits.softmax(-1), values)

        return pool

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        return 2.0 * n * m * num_heads * head_dim


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (SCHEMES, KERNELS):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    register_scheme("window")(WindowAttention)
    register_kernel("sharp")(SharpAttention)


def tiny(**changes: Any) -> Motionformer:
    return create_model("motionformer-tiny", **{"depth": 2, "num_classes": 3, **CLIP, **changes}).eval()


MINE = {"attention": "window", "kernel": {"kind": "sharp", "options": {"sharpness": 3.0}}}


def frames_of(number: int) -> Tensor:
    return torch.randint(0, 255, (number, 24, 24, 3), dtype=torch.uint8)


class TestModels:
    def test_it_is_built_with_its_options_and_does_what_it_says(self) -> None:
        model = tiny(attention="window", attention_options={"radius": 0}, kernel="sharp")
        layer = model.blocks[0].attn
        assert isinstance(layer, WindowAttention)
        assert layer.radius == 0
        x = torch.randn(1, P + F * S, C)
        changed = x.clone()
        changed[:, -S:] += 1.0  # the last frame, which no patch of the others sees
        assert torch.allclose(layer(x, F)[:, P:-S], layer(changed, F)[:, P:-S])
        assert not torch.allclose(layer(x, F)[:, :P], layer(changed, F)[:, :P])

    def test_a_saved_model_comes_back(self, tmp_path: Path) -> None:
        model = tiny(**MINE, attention_options={"radius": 2})
        model.save_pretrained(tmp_path)
        again = load_model(tmp_path)
        assert again.config == model.config
        assert again.blocks[0].attn.kernel.sharpness == 3.0
        clip = torch.randn(1, 3, 8, 24, 24)
        assert torch.equal(again(clip), model(clip))

    def test_a_recipe_takes_both_with_their_options(self) -> None:
        changes = {**MINE, "attention_options": {"radius": 2}, "depth": 1}
        recipe = make_recipe({"name": "mine", "model": {"variant": "motionformer-tiny", "changes": changes}})
        model = Motionformer(build_config(recipe, 3, None))
        assert model.blocks[0].attn.radius == 2
        assert model.blocks[0].attn.kernel.sharpness == 3.0

    def test_options_that_are_not_there_are_named(self) -> None:
        with pytest.raises(UnknownKindError, match="attention 'window' has no option 'size'; it has radius"):
            tiny(attention="window", attention_options={"size": 2})
        with pytest.raises(UnknownKindError, match="attention 'joint' has no option 'radius'; it has none"):
            tiny(attention="joint", attention_options={"radius": 2})
        with pytest.raises(UnknownKindError, match=r"kernel.kind 'sharp' has no option 'blunt'; it has sharpness"):
            tiny(kernel={"kind": "sharp", "options": {"blunt": 1}})

    def test_a_configuration_without_options_is_written_as_before(self) -> None:
        values = ModelConfig().to_dict()
        assert "attention_options" not in values
        assert "options" not in values["kernel"]
        assert ModelConfig.from_dict(values) == ModelConfig()


class TestCost:
    def test_by_hand(self) -> None:
        n, c = P + F * S, C
        window = 2 * c * (P * n + S * (2 * (P + 2 * S) + 2 * (P + 3 * S)))  # the outer frames see two, the inner three
        block = 4 * n * c * c + window + 8 * n * c * c + 2 * 5 * n * c
        total = F * S * 3 * 2 * 8 * 8 * c + 2 * block + 5 * n * c + 3 * c
        assert paper_macs(tiny(attention="window").config) == total
        assert measure(tiny(attention="window").config).macs == total
        assert paper_macs(tiny(attention="window", kernel="sharp").config) == total

    def test_info_says_it(self) -> None:
        words = ["info", "motionformer-tiny", "--attention", "window", "--kernel", "sharp", "--json"]
        out = CliRunner().invoke(app, words, catch_exceptions=False)
        report = json.loads(out.output)
        assert (report["attention"], report["kernel"]) == ("window", "sharp")
        expected = paper_macs(create_model("motionformer-tiny", attention="window", kernel="sharp").config)
        assert report["gmacs_paper"] == round(expected / 1e9, 3)


class TestMaps:
    def test_the_map_is_what_the_layer_mixes(self) -> None:
        model = tiny(**MINE)
        layer, x = model.blocks[0].attn, torch.randn(1, P + F * S, C)
        with torch.no_grad(), record_attention(layer) as records:
            out = layer(x, F)
        weights = layer.attention_map(records[""])
        assert torch.allclose(weights.sum(-1), torch.ones(H, P + F * S), atol=1e-5)
        values = project_qkv(layer.qkv, x, None, H)[2][0]
        mixed = rearrange(weights @ values, "h n d -> 1 n (h d)")
        assert torch.allclose(layer.proj(mixed * layer.scale), out, atol=1e-5)

    @pytest.mark.parametrize("what", ["trajectory", "rollout", "class-token"])
    def test_trace_shows_it(self, what: str) -> None:
        at = None if what == "class-token" else (12.0, 12.0)
        shown = trace(tiny(**MINE), frames_of(8), point=at, frame=0, what=what, layer=0)
        assert shown.scheme == "window"
        mass = shown.tracks[0].map.mass
        assert (mass[:2] > 0).all()
        assert bool((mass[2:] == 0).all()) == (what != "class-token")  # a patch of frame 0 sees frames 0 and 1

    def test_compare_puts_it_beside_others(self) -> None:
        models = {"window": tiny(attention="window"), "joint": tiny(attention="joint")}
        found = compare(models, frames_of(8), point=(12.0, 12.0), frame=0, layer=0)
        assert [one.scheme for one in found.traces] == ["window", "joint"]


class TestCommands:
    """Every command that takes a scheme or a kernel, on a model of both, saved as any other."""

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        labels = tuple(CLASSES)
        tiny(**MINE, num_classes=len(labels), labels=labels).save_pretrained(tmp_path / "mine")
        tiny(attention="joint", num_classes=len(labels), labels=labels).save_pretrained(tmp_path / "joint")
        return tmp_path / "mine"

    def run(self, *words: object) -> Any:
        out = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert out.exit_code == 0, out.output
        return out

    def test_info_of_its_weights(self, model: Path) -> None:
        report = json.loads(self.run("info", model, "--json").stdout)
        assert (report["attention"], report["kernel"]) == ("window", "sharp")
        assert report["gmacs_paper"] == round(paper_macs(load_model(model).config) / 1e9, 3)
        assert report["config"]["kernel"]["options"] == {"sharpness": 3.0}

    def test_trace_and_its_comparison(self, model: Path) -> None:
        words = ["--at", "12,12", "--frame", 0, "--layer", 0, "--compare", model.parent / "joint", "--json"]
        mine, joint = json.loads(self.run("trace", "motion:easy/3", "--model", model, *words).stdout)
        assert (mine["scheme"], joint["scheme"]) == ("window", "joint")
        seen = [[frame["mass"] > 0 for frame in one["tracks"][0]["token_frames"]] for one in (mine, joint)]
        assert seen == [[True, True, False, False], [True, True, True, True]]  # frames at most one from the query's

    def test_export(self, model: Path, tmp_path: Path) -> None:
        self.run("export", model, tmp_path / "mine.pt2")
        metadata = json.loads((tmp_path / "mine.pt2.json").read_text())
        assert (metadata["attention"], metadata["kernel"]) == ("window", "sharp")
        clip = torch.randn(2, 3, 8, 24, 24)
        program = torch.export.load(tmp_path / "mine.pt2").module()
        torch.testing.assert_close(program(clip), load_model(model)(clip), atol=1e-5, rtol=1e-5)

    def test_compare_of_results(self, model: Path, tmp_path: Path) -> None:
        for one in (model, model.parent / "joint"):
            self.run("evaluate", one, "motion:easy:8", "--output", tmp_path / f"of-{one.name}")
        found = json.loads(self.run("compare", tmp_path / "of-joint", tmp_path / "of-mine", "--json").stdout)
        assert found["videos"] == 8

    def test_train_plans_a_recipe_of_both(self, tmp_path: Path) -> None:
        changes = {**MINE, "attention_options": {"radius": 2}, "depth": 1}
        recipe = make_recipe(
            {
                "name": "mine",
                "model": {"variant": "motionformer-tiny", "changes": changes},
                "data": {"train_clips": 8, "val_clips": 8},
                "global_batch": 4,
                "output": str(tmp_path / "run"),
            }
        )
        (tmp_path / "mine.yaml").write_text(recipe.to_yaml())
        plan = json.loads(self.run("train", tmp_path / "mine.yaml", "--dry-run", "--json").stdout)
        expected = measure(build_config(recipe, len(CLASSES)))
        assert plan["model"]["parameters"] == expected.parameters
        assert plan["model"]["multiply_adds"] == expected.macs
        shown = " ".join(self.run("train", tmp_path / "mine.yaml", "--dry-run").stdout.replace("│", "").split())
        assert f"model {plan['model']['what']} parameters" in shown
        assert plan["model"]["what"].startswith("window attention, sharp kernel, ")

    def test_finetune_plans_both(self, tmp_path: Path) -> None:
        write_videos(tmp_path / "videos", "easy", 16, frames=8, size=32)
        words = ["finetune", tmp_path / "videos", "--attention", "window", "--plan", "--json"]
        plan = json.loads(self.run(*words, "model.changes.kernel.kind=sharp").stdout)
        shown = self.run(*words[:-1], "model.changes.kernel.kind=sharp").stdout
        assert "window attention, sharp kernel, 96 wide" in shown
        changes = plan["recipe"]["model"]["changes"]
        assert (changes["attention"], changes["kernel"]["kind"]) == ("window", "sharp")


class TestUses:
    def test_export_gives_the_same(self) -> None:
        model = tiny(**MINE)
        clip = torch.randn(2, 3, 8, 24, 24)
        program = torch.export.export(model, (clip,))
        assert torch.allclose(program.module()(clip), model(clip), atol=1e-5)

    def test_finetune_plans_and_builds_it(self) -> None:
        options, facts = FinetuneOptions(attention="window", name="mine"), VideoFacts(16, 1.0, 48)
        recipe = finetune_recipe(options, facts, Hardware(False, 8 << 30, 2), num_train=20)
        assert recipe.model.changes["attention"] == "window"
        assert isinstance(Motionformer(build_config(recipe, 3)).blocks[0].attn, WindowAttention)
        with pytest.raises(UnknownKindError, match="not 'axial'"):
            finetune_recipe(replace(options, attention="axial"), facts, Hardware(False, 8 << 30, 2), num_train=20)

    def test_image_weights_start_it(self, tmp_path: Path) -> None:
        """What an image model has not, the scheme's own parameters too, starts new; the rest is taken."""
        still = {
            "cls_token": torch.zeros(1, 1, 64),
            "pos_embed": torch.zeros(1, 10, 64),
            "patch_embed.proj.weight": torch.zeros(64, 3, 8, 8),
            "patch_embed.proj.bias": torch.zeros(64),
            "norm.weight": torch.ones(64),
            "norm.bias": torch.zeros(64),
        }
        block = Block(64, SCHEMES["joint"](64, 1)).state_dict()
        still |= {f"blocks.0.{name}": torch.full_like(value, 0.5) for name, value in block.items()}
        save_file(still, tmp_path / "image.safetensors")
        model, report = from_image_weights(
            tmp_path / "image.safetensors", num_classes=2, frames=4, size=24, attention="window"
        )
        layer = model.blocks[0].attn
        assert (layer.qkv.weight == 0.5).all()
        assert (layer.scale == 1.0).all()
        assert "blocks.0.attn.scale" in report.reset

    def test_it_learns(self) -> None:
        model = tiny(**MINE).train()
        model(torch.randn(2, 3, 8, 24, 24)).square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


class TestNames:
    def test_an_unknown_name_lists_those_there_are(self) -> None:
        with pytest.raises(
            UnknownKindError,
            match="`attention` must be one of trajectory, joint, divided, timesformer, space, window; not 'axial'",
        ):
            ModelConfig.from_dict({"attention": "axial"})
        with pytest.raises(UnknownKindError, match=r"`kernel.kind` must be one of exact, .*, sharp; not 'linear'"):
            ModelConfig.from_dict({"kernel": {"kind": "linear"}})

    def test_a_name_is_given_once_but_a_notebook_cell_runs_again(self) -> None:
        register_scheme("window")(WindowAttention)
        with pytest.raises(ValueError, match=r"'joint' is already registered: motionformer.attention.divided"):
            register_scheme("joint")(WindowAttention)

    def test_only_schemes_are_schemes(self) -> None:
        with pytest.raises(TypeError, match="must be a subclass of AttentionScheme"):
            register_scheme("sharp")(SharpAttention)  # type: ignore[arg-type]


class TestPlugins:
    @pytest.fixture(autouse=True)
    def _anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.syspath_prepend(tmp_path)
        contract._load_plugins.cache_clear()
        yield
        contract._load_plugins.cache_clear()
        sys.modules.pop("my_scheme", None)

    def test_a_module_named_in_the_environment_is_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "import motionformer as m\nm.register_scheme('mine')(type('Mine', (m.JointAttention,), {}))\n"
        (tmp_path / "my_scheme.py").write_text(text)
        monkeypatch.setenv(contract.PLUGINS, "my_scheme")
        assert type(tiny(attention="mine").blocks[0].attn).__name__ == "Mine"
        assert "mine" in SCHEMES.names()

    def test_one_that_is_not_there_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(contract.PLUGINS, "no_such_module")
        with pytest.raises(MotionformerError, match=r"MOTIONFORMER_PLUGINS .*No module named 'no_such_module'"):
            tiny(attention="nothing")
