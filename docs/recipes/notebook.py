"""A notebook: cells that use one connection, each run when its reader likes, over pauses and restarts.

Each `# %%` begins a cell, as Jupyter (with jupytext), VS Code and PyCharm read it; IPython awaits at the top level.
"""

# %% connect once
import dataspace
from dataspace import Record

connection = dataspace.connect(name="notebook", grace=1)
space = await connection.open()

# %% state something, which others see as long as the notebook is connected
claim = await space.assert_(Record("looking-at", "sales"))

# %% look at what is there now
print(sorted(await space.matches("reading($device, $value)")))

# %% read on where the last cell has stopped
readings = space.observe("reading($device, $value)")
print(await anext(readings))

# %% run this cell again for the next one; interrupt it if none comes
print(await anext(readings))

# %% the end
await connection.aclose()
