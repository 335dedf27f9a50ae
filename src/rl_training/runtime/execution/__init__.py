"""How gradient steps are executed: eagerly, compiled, or as CUDA graphs."""
