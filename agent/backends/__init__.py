"""One module or package for each source of readings. Backends import the model and the catalogue, never each other."""
