"""Checkpoints from the Hugging Face Hub: planned, fetched resumably, verified, and looked after on disk.

huggingface_hub supplies endpoint, token, proxies, URLs and the HTTP client. The bytes are fetched by a Range transfer
of our own, since that library starts every interrupted file again from its first byte.

Asking the hub
    names       which names may become files, and where                        errors     failures, with cures
    client      metadata, redirects by hand, byte ranges, the token            body       the bytes of one response
    responses   refusals and broken connections, as errors                     retry      Retry-After and back-off
    listing     files of a commit                                              remote     headers of remote safetensors
    select      files that a kind of plan needs (whole, text, head)            plan       the plan

Fetching
    chunks      which bytes of a file are there, which may be asked for        partfile   `.part` files and checksums
    journal     what survives a kill -9: JSON lines, one file per folder       filework   one file of a running transfer
    connection  one of the parallel connections                                finishing  checksum, name
    context     what these share, and the settings                             transfer   one run of one plan
    jobs        downloads between two runs                                     manager    start, pause, resume, cancel
    limiter     bandwidth cap     meter  rate and ETA     tasks  threads       progress   what is reported
    sizes       bytes as people read them

On disk
    manifest    `.inkstand.json`: what this program put into a folder          folder     the manifest during a transfer
    entry       a model folder as it is shown     facts  what is asked of it   library    all models, three sources
    pairing     which head a model is used with                                storage    verify and delete
    move        another models folder                                          hf_cache   the Hugging Face cache
    catalog     the known Inkling checkpoints                                  library_settings

The life of a download: `DownloadManager.plan` asks and writes nothing; `start` takes the lock of the folder, opens its
journal and runs a `Transfer`. Its connections claim runs of chunks near the frontier of the first unfinished files;
each full chunk is synced, then noted in the journal. Behind the frontier the checksum follows; when it is right the
file gets its name, and the manifest an entry. Reports go to subscribers, in the event loop.

One folder has one job id, one journal, one lock. Nothing here knows of MLX: what a folder holds is asked of an
`Inspector` given by the caller (`engine.installed` gives one that reads weights).
"""
