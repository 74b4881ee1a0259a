"""`motionformer info`"""


def info() -> None: ...
