"""What a model costs."""
