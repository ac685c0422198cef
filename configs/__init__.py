"""The catalogue: Hydra configs, found as `pkg://medimg_eval.configs`."""
