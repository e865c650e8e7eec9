"""Kernels of pages show printed output only: no value of the last line, no history."""

c = get_config()  # noqa: F821  defined by Jupyter
c.HistoryManager.enabled = False
c.InteractiveShell.ast_node_interactivity = "none"
