"""The paper's equations, written so that nobody can misread them and slow on purpose: what ours is compared to."""
