"""Ten classics of conversational concurrency, each a module with a boot function ``main``.

    python -m dataspace.actors.examples.chat
    dataspace serve --actor dataspace.actors.examples.chat:main

What they have to tell they send as ``line(text)``, so that a client of the daemon can follow them too.
"""
