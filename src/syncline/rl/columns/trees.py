"""Nested arrays: dicts and tuples of arrays with the structure of their spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syncline.rl.value_types import Tree as Tree


def map_tree(function: Callable[..., object], tree: Tree, *others: Tree) -> Tree:
    """Return the tree of `function(leaf, …)`, applied to the corresponding leaves of all trees."""
    if isinstance(tree, dict):
        return {
            key: map_tree(function, value, *(other[key] for other in others))
            for key, value in tree.items()
        }
    if isinstance(tree, (tuple, list)):
        made = [
            map_tree(function, value, *(other[i] for other in others))
            for i, value in enumerate(tree)
        ]
        return tuple(made) if isinstance(tree, tuple) else made
    return function(tree, *others)


def leaves(tree: Tree) -> list[Tree]:
    """Return the leaves in order."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def first_leaf(tree: Tree) -> Tree:
    """Return the first leaf."""
    while isinstance(tree, (dict, tuple, list)):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


def stack_trees(function: Callable[[Sequence[Tree]], object], trees: Sequence[Tree]) -> Tree:
    """Return the tree whose leaves are `function([leaf of the first tree, of the second, …])`."""
    return map_tree(lambda *each: function(each), trees[0], *trees[1:])


def row(tree: Tree, place: int) -> Tree:
    """Return the tree of `leaf[index]`."""
    return map_tree(lambda leaf: leaf[place], tree)
