"""Ten classics of conversational concurrency, each a module with a boot function ``main``.

    python -m examples.actors.chat
    dataspace serve --actor examples.actors.chat:main

What they have to tell they send as ``line(text)``, so that a client of the daemon can follow them too.
"""
