"""What the project claims about speed and memory, measured on the reader's own machine."""
