"""`motionformer convert`"""


def convert() -> None: ...
