"""Kernels of pages show what is printed and nothing else: no value of a last line, no history."""

c = get_config()  # noqa: F821  Jupyter hands it to this file
c.HistoryManager.enabled = False
c.InteractiveShell.ast_node_interactivity = "none"
