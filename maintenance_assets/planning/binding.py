"""From an expression to its typed form over a schema.

Columns are found, types decided and constants folded here, so that nothing but values can be wrong
later. Every ValueError points at the place in the text.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintenance_assets.errors import RewriteError
from maintenance_assets.planning import expressions as ex
from maintenance_assets.planning import typed
from maintenance_assets.planning.binding_constants import (
    NULL_BOOLEAN,
    check_comparable,
    compare_with,
    constant,
    locate,
)
from maintenance_assets.planning.binding_functions import ArgumentError, bind_function
from maintenance_assets.planning.evaluation import Rows, evaluate
from maintenance_assets.planning.evaluation_arithmetic import arithmetic_type, negation_type
from maintenance_assets.planning.evaluation_cast import check_cast
from maintenance_assets.planning.evaluation_compare import (
    comparable_decimals,
    mirrored,
)
from maintenance_assets.planning.evaluation_text import like, like_parts
from maintenance_assets.planning.expressions import Expression, Span, pointing_at
from maintenance_assets.planning.families import (
    NUMBERS,
    ArrowType,
    Family,
    family,
    plain_type,
    type_name,
)
from maintenance_assets.planning.typed import Constant, Typed
from maintenance_assets.planning.unifying import unified

_UNTYPED_FIRST = frozenset({"coalesce", "greatest", "least", "nullif"})


def bind_expression(tree: Expression, schema: pa.Schema, text: str) -> Typed:
    """The typed form of an expression; ValueError that points at what does not fit the schema."""
    return _Binder(schema, text).bind(tree)


def bind_condition(tree: Expression, schema: pa.Schema, text: str) -> Typed:
    """The same for an expression that has to be a condition."""
    return _Binder(schema, text).condition(tree)


class _Binder:
    def __init__(self, schema: pa.Schema, text: str) -> None:
        self._schema = schema
        self._text = text

    def bind(self, node: Expression) -> Typed:
        """Bind a node and all below it."""
        match node:
            case ex.Column():
                return self._column(node)
            case ex.Literal():
                return self._said(node.span, lambda: constant(node))
            case ex.Opaque():
                return typed.Unknowable()
            case ex.And():
                return self._folded(typed.And(tuple(map(self.condition, node.operands))), node)
            case ex.Or():
                return self._folded(typed.Or(tuple(map(self.condition, node.operands))), node)
            case ex.Not():
                return self._folded(typed.Not(self.condition(node.operand)), node)
            case ex.IsTruth():
                return self._folded(typed.IsTruth(self.condition(node.operand), node.value), node)
            case ex.IsNull():
                return self._folded(typed.IsNull(self.bind(node.operand)), node)
            case ex.Compare():
                return self._folded(self._compare(node), node)
            case ex.InList():
                return self._folded(self._in_list(node), node)
            case ex.Like():
                return self._folded(self._like(node), node)
            case ex.Case():
                return self._folded(self._case(node), node)
            case _:
                return self._folded(self._calculated(node), node)

    def condition(self, node: Expression) -> Typed:
        """Bind a node that has to be true or false."""
        found = self.bind(node)
        if family(found.type) is Family.NULL:
            return NULL_BOOLEAN
        if family(found.type) is not Family.BOOLEAN:
            message = f"Expected a condition, but this is a value of type {type_name(found.type)}"
            raise self._error(node.span, message)
        return found

    def _error(self, span: Span, message: str) -> ValueError:
        return pointing_at(self._text, span, message)

    def _said(self, span: Span, say: Callable[[], Any]) -> Any:
        """Point with an error in words at the place it is about."""
        try:
            return say()
        except ValueError as error:
            raise self._error(span, str(error)) from None

    def _folded(self, node: Typed, origin: Expression) -> Typed:
        """A constant where the node depends on nothing but constants."""
        below = typed.children(node)
        if not all(map(typed.is_constant, below)):
            return node
        try:
            return Constant(evaluate(node, Rows(1, {}))[0])
        except RewriteError as error:
            raise self._error(origin.span, str(error)) from None

    # --- columns -------------------------------------------------------------------------

    def _column(self, node: ex.Column) -> typed.Field:
        path = node.path
        if node.name in self._schema.names and not self._reaches(path):
            path = (node.name,)
        count = self._schema.names.count(path[0])
        if count != 1:
            raise self._error(node.span, self._unknown(path[0], count))
        type_ = self._schema.field(path[0]).type
        for depth, name in enumerate(path[1:], 1):
            type_ = self._below(node, ".".join(path[:depth]), type_, name)
        return field_at(path, type_, self._schema)

    def _reaches(self, path: tuple[str, ...]) -> bool:
        """Whether a path leads from a column to a field; a name with a dot may be a column."""
        if self._schema.names.count(path[0]) != 1:
            return False
        type_ = self._schema.field(path[0]).type
        for name in path[1:]:
            if not pa.types.is_struct(type_) or type_.get_field_index(name) < 0:
                return False
            type_ = type_.field(name).type
        return True

    def _unknown(self, name: str, count: int) -> str:
        if count > 1:
            return f"The column name {name!r} occurs {count} times"
        available = ", ".join(self._schema.names)
        return f"Unknown column {name!r}. Available columns: {available}"

    def _below(self, node: ex.Column, parent: str, type_: ArrowType, name: str) -> ArrowType:
        if not pa.types.is_struct(type_):
            raise self._error(node.span, f"Column {parent!r} of type {type_} has no fields")
        if type_.get_field_index(name) < 0:
            names = ", ".join(type_.field(i).name for i in range(type_.num_fields))
            message = f"Unknown field {name!r} of column {parent!r}. Available fields: {names}"
            raise self._error(node.span, message)
        return type_.field(name).type

    # --- conditions ----------------------------------------------------------------------

    def _compare(self, node: ex.Compare) -> Typed:
        left, right = self.bind(node.left), self.bind(node.right)
        return self._said(node.span, lambda: compare_typed(node.operator, left, right))

    def _in_list(self, node: ex.InList) -> Typed:
        operand = self.bind(node.operand)
        items = [self.bind(item) for item in node.items]
        constants = [item for item in items if isinstance(item, Constant)]
        if len(constants) < len(items):
            pairs = zip(node.items, items, strict=True)
            return typed.Or(tuple(self._equals(operand, item, at.span) for at, item in pairs))
        values, has_null = [], False
        for at, item in zip(node.items, constants, strict=True):
            place = self._said(at.span, partial(_member, operand.type, item))
            has_null = has_null or place is None
            if place is not None and place.exact:
                values.append(place.value)
        if family(operand.type) is Family.NULL:
            return NULL_BOOLEAN
        type_ = values[0].type if values else operand.type
        return typed.Member(operand, in_order(pa.array(values, type_)), has_null)

    def _equals(self, operand: Typed, item: Typed, span: Span) -> Typed:
        return self._said(span, lambda: compare_typed("=", operand, item))

    def _like(self, node: ex.Like) -> Typed:
        operand = self.bind(node.operand)
        if family(operand.type) is Family.NULL:
            return NULL_BOOLEAN
        if family(operand.type) is not Family.TEXT:
            message = f"LIKE is for text, not for {type_name(operand.type)}"
            raise self._error(node.operand.span, message)
        parts = like_parts(node.pattern, node.escape)
        # A pattern can be too large for the engine of regular expressions.
        probe = pa.array([""], pa.large_string())
        self._said(node.span, lambda: like(probe, parts, node.ignore_case))
        return typed.Like(operand, parts, node.ignore_case)

    # --- values --------------------------------------------------------------------------

    def _calculated(self, node: Expression) -> Typed:
        match node:
            case ex.Arithmetic():
                left, right = self.bind(node.left), self.bind(node.right)
                return self._arithmetic(node, left, right)
            case ex.Negate():
                operand = self.bind(node.operand)
                type_ = self._said(node.span, lambda: negation_type(operand.type))
                return typed.Negate(operand, type_, node.span)
            case ex.Cast():
                operand = self.bind(node.operand)
                plain = plain_type(node.type)
                self._said(node.span, lambda: check_cast(operand.type, plain))
                return typed.Cast(operand, plain, node.span)
            case ex.Function():
                return self._function(node)
            case _:
                raise self._error(node.span, "This cannot be evaluated")

    def _arithmetic(self, node: ex.Arithmetic, left: Typed, right: Typed) -> Typed:
        if Family.NULL in (family(left.type), family(right.type)):
            return Constant(pa.scalar(None))
        type_ = self._said(node.span, lambda: arithmetic_type(node.operator, left.type, right.type))
        return typed.Arithmetic(node.operator, left, right, type_, node.span)

    def _function(self, node: ex.Function) -> Typed:
        arguments: Sequence[Typed] = [self.bind(argument) for argument in node.arguments]
        if node.name in _UNTYPED_FIRST:
            arguments = self._said(node.span, lambda: unified(arguments, node.span))
        try:
            return bind_function(node.name, arguments, node.span)
        except ArgumentError as error:
            raise self._error(node.arguments[error.index].span, str(error)) from None

    def _case(self, node: ex.Case) -> Typed:
        conditions = [self.condition(condition) for condition, _ in node.branches]
        values = [self.bind(value) for _, value in node.branches]
        *branches, otherwise = self._said(
            node.span, lambda: unified([*values, self.bind(node.otherwise)], node.span)
        )
        return typed.Case(tuple(zip(conditions, branches, strict=True)), otherwise)


def field_at(path: tuple[str, ...], type_: ArrowType, schema: pa.Schema) -> typed.Field:
    """A column, or a field below one, of a schema."""
    return typed.Field(path, plain_type(type_), type_, _is_alone(path, schema))


def _is_alone(path: tuple[str, ...], schema: pa.Schema) -> bool:
    """Whether a dotted name means one column: `a.b` may be a column, and a field of `a`."""
    name = ".".join(path)
    owners = [one for one in schema.names if one == name or name.startswith(f"{one}.")]
    return len(owners) == 1


def compare_typed(operator: str, left: Typed, right: Typed) -> Typed:
    """A comparison of two typed values; ValueError in words when they do not compare."""
    if isinstance(right, Constant):
        return compare_with(operator, left, right)
    if isinstance(left, Constant):
        return compare_with(mirrored(operator), right, left)
    check_comparable(left.type, right.type)
    families = {family(left.type), family(right.type)}
    if Family.NULL in families:
        return _with_null(operator, left, right)
    if families <= NUMBERS - {Family.FLOAT} and not comparable_decimals(left.type, right.type):
        raise ValueError(f"{left.type} and {right.type} have too many digits to compare exactly")
    return typed.Compare(operator, left, right)


def member_of(operand: Typed, constants: Sequence[Constant]) -> Typed:
    """Whether an operand is one of constants that compare with it and are not NULL."""
    places = [locate(one, operand.type) for one in constants]
    values = pa.array([place.value for place in places if place.exact], operand.type)
    return typed.Member(operand, in_order(values), False)


def in_order(values: Any) -> Any:
    """Values without repetition in ascending order, NaN last."""
    unique = values.unique()
    return unique.take(pc.array_sort_indices(unique))


def _with_null(operator: str, left: Typed, right: Typed) -> Typed:
    if operator != "same":
        return NULL_BOOLEAN
    return typed.And((typed.IsNull(left), typed.IsNull(right)))


def _member(type_: ArrowType, item: Constant) -> Any:
    """The place of an item among the values of a type; None for NULL."""
    if not item.scalar.is_valid or family(type_) is Family.NULL:
        return None
    return locate(item, type_)
