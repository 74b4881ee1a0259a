"""Annotation files and folders become records, records become clips. Knows nothing of models or recipes."""

from motionformer.data.clips import ClipReader, Views
from motionformer.data.datasets import ClipDataset, EpochSampler, Failure, FailurePolicy, Visit, collate_clips
from motionformer.data.record import Annotations, Record
from motionformer.data.shards import ShardDataset, write_shards
from motionformer.data.source import open_dataset, open_source
from motionformer.video.sample import (
    FrameSampler,
    MiddleSegments,
    RandomClip,
    RandomSegments,
    ViewClips,
    eval_sampler,
    middle_sampler,
    train_sampler,
)

__all__ = [
    "Annotations",
    "ClipDataset",
    "ClipReader",
    "EpochSampler",
    "Failure",
    "FailurePolicy",
    "FrameSampler",
    "MiddleSegments",
    "RandomClip",
    "RandomSegments",
    "Record",
    "ShardDataset",
    "ViewClips",
    "Views",
    "Visit",
    "collate_clips",
    "eval_sampler",
    "middle_sampler",
    "open_dataset",
    "open_source",
    "train_sampler",
    "write_shards",
]
