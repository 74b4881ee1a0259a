"""`python -m motionformer` is `motionformer`: for launchers that take a module."""

from motionformer.cli import main

if __name__ == "__main__":
    main()
