"""YAML as plain values: no objects, no key twice, and no more of it than was written."""

from typing import Any

import yaml

MOST_VALUES = 200_000
"""With aliases, a few lines can stand for billions of values."""


class _Loader(yaml.SafeLoader):
    """YAML takes the last of two equal keys and says nothing; this refuses them."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                line = key.start_mark.line + 1
                raise ValueError(f"key '{key.value}' is given twice, again in line {line}")
            seen.add((key.tag, str(key.value)))
        return node

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None:
            _require_small(node)
        return node


def load_yaml(text: str) -> Any:
    """The values of a document; ValueError says what is wrong, and quotes nothing of the text."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"is not YAML: {error.problem or 'broken'}{line}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _require_small(root: yaml.Node) -> None:
    """Count values as often as aliases repeat them, without following each of these."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = MOST_VALUES  # one that contains itself has no end
        inner = 0
        if isinstance(node, yaml.SequenceNode):
            inner = sum(size(one) for one in node.value)
        elif isinstance(node, yaml.MappingNode):
            inner = sum(size(key) + size(value) for key, value in node.value)
        sizes[id(node)] = min(MOST_VALUES, 1 + inner)
        return sizes[id(node)]

    if size(root) >= MOST_VALUES:
        raise ValueError(f"stands for {MOST_VALUES:,} values or more (by aliases?)")
