"""Graphs: work recorded once and queued again as often as wanted, in one go (`hcq.capture`).

Recording is `recording`, what was recorded `nodes`, who depends on whom `ranges`, which queue takes what `plan`, how it
gets there `native` (devices of native queues) and `queued` (any others with command queues); `graph` is what the user
holds, `listed` the lower form over a client's own list, `draw` pictures. What does not live here: command queues.
"""

from hcq.graph.graph import Graph
from hcq.graph.listed import CopyItem, LaunchItem, ListGraph
from hcq.graph.recording import capture

__all__ = ["CopyItem", "Graph", "LaunchItem", "ListGraph", "capture"]
