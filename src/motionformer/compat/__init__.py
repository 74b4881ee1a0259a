"""Classes with the interfaces of other projects, so that an import line replaces their own copies."""
