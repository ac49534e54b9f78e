"""Checkpoints from the Hugging Face Hub, resumable and verified.

huggingface_hub supplies endpoint, token, proxy, URLs and response types. The bytes are fetched by a Range transfer of
our own, since that library starts every interrupted file again from its first byte.

    names     which names of a repository may become files            errors    what can go wrong, and the cure
    client    HTTP: metadata, redirects, the token's boundary          retry     back-off, Retry-After
    remote    headers of remote safetensors files                      select    which files a kind of plan needs
    plan      what would be fetched, and whether it fits               manifest  what this program put into a folder
    chunks    which bytes of a file are there                          partfile  `.part` files and their verification
    journal   what survives a kill -9                                  limiter   bandwidth cap     meter  rate and ETA
    transfer  one plan, fetched by a pool of connections               manager   all downloads: pause, resume, relaunch
    library   models on disk                                           hf_cache  those in the Hugging Face cache
    catalog   the known Inkling checkpoints                            storage   deleting, moving, verifying models

A plan becomes a job. The job id is derived from the folder, so one folder has one job, one journal and one lock.
Nothing here knows of MLX: what a model folder holds is asked of an `Inspector` given by the caller.
"""
