"""Inkling models with speculative decoding by their own MTP head, on MLX.

The one import side effect of the project happens here: on Linux an OpenBLAS is loaded, which only helps before
`mlx.core` is first imported. `BLAS` says what came of it.
"""

from engine.blas import preload_openblas

__version__ = "0.1.0"

BLAS = preload_openblas()
