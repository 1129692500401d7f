"""Settings: the model, the loader with line numbers, and the example file."""
