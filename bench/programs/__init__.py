"""The measured programs. Libraries with the same API share one program and are its argument."""
