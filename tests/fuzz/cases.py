"""Random cases: an artefact, and one to four edits of it."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.fuzz.edits import Case, kinds
from tests.fuzz.seeds import seed_names


def cases(names: tuple[str, ...] = seed_names()) -> st.SearchStrategy[Case]:
    edit = st.tuples(st.sampled_from(list(kinds())), st.integers(0, 2**32))
    return st.builds(Case, st.sampled_from(names), st.lists(edit, min_size=1, max_size=4).map(tuple))
