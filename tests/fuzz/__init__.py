"""A fuzz target for the file reader and the checker.

    python -m tests.fuzz --minutes N [--seed S] [--findings FOLDER]

Each case is a real artefact with some edits (edits.py), in a process of its own with limits of memory and time
(sandbox.py). A finding is whatever else than a SpatialReject leaves `parse_artefact` or `check`, a case that takes
longer or more than its limits, and an accepted program that the oracle calls unsafe (target.py).
"""
