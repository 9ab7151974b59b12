"""What keeps the tree readable: no cycles of imports, and no crowded folders. `make lint` holds the layers."""

from collections import Counter

import grimp
import networkx
import pytest


#: Modules in a folder beyond which nobody sees the design any more.
MOST = 15


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("clue_hf", exclude_type_checking_imports=True, cache_dir=None)


def test_no_module_imports_itself_through_others(graph):
    """Imports inside functions count as well."""
    imports = networkx.DiGraph((module, other) for module in graph.modules
                               for other in graph.find_modules_directly_imported_by(module))  # fmt: skip
    assert [sorted(group) for group in networkx.strongly_connected_components(imports) if len(group) > 1] == []


def test_no_folder_has_too_many_modules(graph):
    modules = [module for module in graph.modules if not graph.find_children(module)]
    folders = Counter(module.rpartition(".")[0] for module in modules)
    assert {folder: count for folder, count in folders.items() if count > MOST} == {}
