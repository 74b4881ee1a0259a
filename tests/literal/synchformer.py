"""Synchformer done literally: every row of every layer, attention as a matrix, parameters under the published names.

Its `state_dict` is therefore a file in the published layout, of any size. Dimensions: b videos, s segments, f token
frames, n tokens, c channels.
"""

import torch
from einops import rearrange, repeat
from torch import Tensor, nn


class LiteralSynchformer(nn.Module):
    def __init__(
        self, dim: int = 768, *, visual: int = 12, audio: int = 12, layers: int = 3, segments: int = 14
    ) -> None:
        super().__init__()
        self.vfeat_extractor = LiteralVisual(dim, visual)
        self.afeat_extractor = LiteralAudio(dim, audio)
        self.vproj, self.aproj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.transformer = LiteralComparison(dim, layers, segments)

    def forward(self, segments: Tensor, mel: Tensor) -> Tensor:
        visual, audio = self.vproj(self.vfeat_extractor(segments)), self.aproj(self.afeat_extractor(mel))
        return self.transformer(visual.flatten(1, 2), audio.flatten(1, 2))


class LiteralVisual(nn.Module):
    """`[b s t 3 H W] -> [b s f c]`."""

    def __init__(self, dim: int = 768, depth: int = 12) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 197, dim))
        self.temp_embed = nn.Parameter(torch.zeros(1, 8, dim))
        self.patch_embed = Patches(nn.Conv2d(3, dim, 16, 16))  # in the file, and used by nobody
        self.patch_embed_3d = Patches(nn.Conv3d(3, dim, (2, 16, 16), (2, 16, 16)))
        self.blocks = nn.ModuleList(Divided(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.spatial_attn_agg = Aggregation(dim)

    def forward(self, segments: Tensor) -> Tensor:
        clips = rearrange(segments, "b s t c y x -> (b s) c t y x")
        x = self.patch_embed_3d.proj(clips).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        places = torch.cat((self.pos_embed[:, :1], self.pos_embed[:, 1:].repeat(1, 8, 1)), dim=1)
        times = self.temp_embed.repeat_interleave(196, dim=1)
        x = x + places
        x = torch.cat((x[:, :1], x[:, 1:] + times), dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x[:, 1:])
        pooled = self.spatial_attn_agg(rearrange(x, "b (f n) c -> (b f) n c", f=8))
        return rearrange(pooled, "(b s f) c -> b s f c", s=segments.shape[1], f=8)


class LiteralAudio(nn.Module):
    """`[b s 1 128 66] -> [b s 6 c]`."""

    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.ast = Spectrogram(dim, depth)
        self.freq_attn_agg = Aggregation(dim)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.ast(mel.flatten(0, 1))[:, 2:]
        pooled = self.freq_attn_agg(rearrange(x, "b (y t) c -> (b t) y c", y=12))
        return rearrange(pooled, "(b s t) c -> b s t c", s=mel.shape[1], t=6)


class LiteralComparison(nn.Module):
    def __init__(self, dim: int, layers: int, segments: int) -> None:
        super().__init__()
        self.OFF_tok = nn.Parameter(torch.zeros(1, 1, dim))
        self.MOD_tok = nn.Parameter(torch.zeros(1, 1, dim))
        self.vis_in_lnorm, self.aud_in_lnorm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.pos_emb_cfg = nn.Module()
        self.pos_emb_cfg.pos_emb = nn.Parameter(torch.zeros(1, 2 + 14 * segments, dim))
        self.blocks = nn.ModuleList(Compare(dim) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.off_head = nn.Linear(dim, 21)

    def forward(self, visual: Tensor, audio: Tensor) -> Tensor:
        off, mod = (token.expand(len(visual), -1, -1) for token in (self.OFF_tok, self.MOD_tok))
        x = torch.cat((off, self.vis_in_lnorm(visual), mod, self.aud_in_lnorm(audio)), dim=1)
        x = x + self.pos_emb_cfg.pos_emb
        for block in self.blocks:
            x = block(x)
        return self.off_head(self.ln_f(x)[:, 0])


class Patches(nn.Module):
    def __init__(self, proj: nn.Module) -> None:
        super().__init__()
        self.proj = proj


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    q, k, v = (rearrange(x, "b n (h d) -> b h n d", h=heads) for x in (q, k, v))
    weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(dim=-1)
    return rearrange(weights @ v, "b h n d -> b n (h d)")


class DividedLayer(nn.Module):
    """The class token attends to everything, a patch to its group and to the class token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = dim // 64
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, groups: str) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        first = attend(q[:, :1], k, v, self.heads)
        grouped = [rearrange(part[:, 1:], f"b (f n) c -> {groups}", f=8) for part in (q, k, v)]
        copies = len(grouped[0]) // len(x)
        keys, values = (
            torch.cat((repeat(part[:, :1], "b 1 c -> (b g) 1 c", g=copies), group), dim=1)
            for part, group in zip((k, v), grouped[1:], strict=True)
        )
        rest = attend(grouped[0], keys, values, self.heads)
        rest = rearrange(rest, f"{groups} -> b (f n) c", b=len(x), f=8)
        return self.proj(torch.cat((first, rest), dim=1))


class MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Divided(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim, eps=1e-6) for _ in range(3))
        self.attn, self.timeattn, self.mlp = DividedLayer(dim), DividedLayer(dim), MLP(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.timeattn(self.norm3(x), "(b n) f c")
        x = x + self.attn(self.norm1(x), "(b f) n c")
        return x + self.mlp(self.norm2(x))


class Aggregation(nn.TransformerEncoderLayer):
    """`[b n c] -> [b c]`: the first row of PyTorch's own layer, whose rows are all computed."""

    def __init__(self, dim: int) -> None:
        how = {"dropout": 0.0, "activation": "gelu", "layer_norm_eps": 1e-6, "batch_first": True, "norm_first": True}
        super().__init__(dim, dim // 64, 4 * dim, **how)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1))[:, 0]


class Dense(nn.Module):
    """A linear layer under the name `dense`."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x)


class Spectrogram(nn.Module):
    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.embeddings = nn.Module()
        self.embeddings.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.embeddings.distillation_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.embeddings.position_embeddings = nn.Parameter(torch.zeros(1, 74, dim))
        self.embeddings.patch_embeddings = nn.Module()
        self.embeddings.patch_embeddings.projection = nn.Conv2d(1, dim, 16, 10)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(AudioLayer(dim) for _ in range(depth))
        self.layernorm = nn.LayerNorm(dim, eps=1e-12)

    def forward(self, mel: Tensor) -> Tensor:
        own = self.embeddings
        x = own.patch_embeddings.projection(mel).flatten(2).transpose(1, 2)
        tokens = (token.expand(len(x), -1, -1) for token in (own.cls_token, own.distillation_token))
        x = torch.cat((*tokens, x), dim=1) + own.position_embeddings
        for layer in self.encoder.layer:
            x = layer(x)
        return self.layernorm(x)


class AudioLayer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = dim // 64
        self.attention = nn.Module()
        self.attention.attention = nn.Module()
        for name in ("query", "key", "value"):
            setattr(self.attention.attention, name, nn.Linear(dim, dim))
        self.attention.output = Dense(dim, dim)
        self.intermediate, self.output = Dense(dim, 4 * dim), Dense(4 * dim, dim)
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(dim, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        own, y = self.attention.attention, self.layernorm_before(x)
        x = x + self.attention.output(attend(own.query(y), own.key(y), own.value(y), self.heads))
        return x + self.output(nn.functional.gelu(self.intermediate(self.layernorm_after(x))))


class Compare(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attn = nn.Module()
        for name in ("query", "key", "value", "proj"):
            setattr(self.attn, name, nn.Linear(dim, dim))
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        x = x + self.attn.proj(attend(self.attn.query(y), self.attn.key(y), self.attn.value(y), 8))
        return x + self.mlp(self.ln2(x))


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Every parameter drawn, so that none that is forgotten or misplaced goes unnoticed; in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            fan = parameter[0].numel() if parameter.ndim > 1 and "weight" in name else 1
            parameter.copy_(drawn * (fan**-0.5 if fan > 1 else 0.2) + float(parameter.ndim == 1 and "weight" in name))
    return model.eval()
