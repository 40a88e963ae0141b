"""Changes that make a loaded pipeline faster or smaller: each a named function, and profiles composed of
them.

profiles      exact, fast, low-memory: which speed-ups, and STOKER_PROFILE
speed_up      what a speed-up says about itself, and what it is applied to
attention     the quickest attention, measured here     block_compile  compiled blocks, kept on disk
layers        fused projections, channels last          step_caches    steps that reuse blocks of the last
prompt_cache  encoded prompts                           float8         matrix products in 8 bits
placement     what is on the GPU when                   several_gpus   one image on several GPUs
"""
