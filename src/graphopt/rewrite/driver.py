"""The worklist that runs rules to a fixpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from time import perf_counter
from typing import Any

from graphopt.analysis.types import infer_types
from graphopt.errors import Decline, EngineError, PassError
from graphopt.ir import Graph, Model, Node, Value
from graphopt.ir.seal import sealed
from graphopt.rewrite.attempts import RuleAttempt, RuleOrWaiting, Table, Tables
from graphopt.rewrite.events import Event, Failure, LimitReached, Log, NodeNote
from graphopt.rewrite.options import Options
from graphopt.rewrite.rewriter import Rewriter
from graphopt.rewrite.rule import GraphPass, OpRule, PatternRule, Rule
from graphopt.rewrite.waiting import FUNCTIONS, Waiting

_FAILURES_ALLOWED = 3
"""A rule is not tried again at a node where it raised, nor anywhere once it raised at this many nodes."""

_MOST_READERS = 8
"""The readers of a changed value are pushed on the worklist again unless there are more than this."""

_MOST_OUTPUTS = 64
"""The same limit for the outputs of a node, such as a `Split` into single rows."""


class RewriteLoopError(PassError):
    """Rules undo each other's rewrites; the message shows the cycle."""


Known = tuple[int, tuple[RuleOrWaiting, ...], Table]
"""The number of operators seen, the rules that need others, and the dispatch table of the remaining rules."""


class Driver:
    """Runs rules and graph passes over one model and keeps the log.

    Attributes:
        model: the model.
        log: the log of the run.
        strict: re-raise what a pass raises instead of undoing its changes and logging it.
        check: verify the view after every rewrite (slow, for tests).
        tables: dispatch tables, possibly shared with other runs.
    """

    def __init__(
        self, model: Model, log: Log | None = None, *, strict: bool = False, check: bool = False,
        options: Options | None = None, rewriter: Rewriter | None = None, tables: Tables | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.log = log if log is not None else Log()
        self.strict = strict
        self.check = check
        self.rewriter = rewriter or Rewriter(model, self.log, options or Options())
        self._journal = self.rewriter._journal
        self._failed: dict[str, set[Node | None]] = {}
        self._inferred = 0
        self._quiet: set[Hashable] = set()
        """The rules, and names of graph passes, that cannot change the present model; a set of rules that cycles is one
        entry."""
        self._quiet_at: tuple[int, ...] = ()
        """The state of the model for which `_quiet` holds."""
        self._present: set[str] = set()
        """All operators seen in the model so far."""
        self._ready: set[RuleOrWaiting] = set()
        """The rules whose operators are present."""
        self._looked_at: tuple[int, ...] = ()
        """The state of the model when `_present` was last complete."""
        self.tables = tables or Tables()
        self._broken: set[tuple[RuleOrWaiting, int]] = set()
        """The rules for which no dispatch entry could be built at an opset."""
        self._known: dict[tuple[tuple[RuleOrWaiting, ...], int], Known] = {}

    @classmethod
    def through(cls, rewriter: Rewriter) -> Driver:
        """A driver that works through the gate of a running pass: its changes are part of that pass."""
        return cls(rewriter.model, rewriter._log, rewriter=rewriter)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Context that undoes all changes to model and log if its body raises."""
        mark, events = self._journal.mark(), len(self.log.events)
        try:
            yield
        except BaseException:
            self._journal.undo(mark)
            del self.log.events[events:]
            raise

    @contextmanager
    def as_one(self, detail: str) -> Iterator[None]:
        """Context of changes that belong together: they become one event of the present pass."""
        rule, graph, events = self.rewriter._rule, self.rewriter.graph, self.log.events
        first = len(events)
        yield
        parts = events[first:]
        del events[first:]
        self.rewriter.enter(graph, rule)
        events.append(Event.joined(parts, first, rule, graph.name, detail))

    def infer(self) -> None:
        """Infer the types and shapes of all values."""
        start = perf_counter()
        self._inferred += 1
        infer_types(self.model)
        self.rewriter.forget_shapes()
        self.log.of("infer types").seconds += perf_counter() - start

    def _state(self) -> tuple[int, ...]:
        """A state that differs after any change: the numbers of rewrites, primitive changes and inference runs."""
        return len(self.log.events), self._journal.state(), self._inferred

    def _is_quiet(self, rules: Iterable[Hashable]) -> bool:
        """Whether all of these ran on the present model without a rewrite."""
        return self._quiet.issuperset(rules) and self._quiet_at == self._state()

    def _note_quiet(self, rules: Iterable[Hashable]) -> None:
        state = self._state()
        if state != self._quiet_at:
            self._quiet.clear()
            self._quiet_at = state
        self._quiet.update(rules)

    def refresh_types(self) -> bool:
        """Infer again if rewrites made values whose types are not fully known. Returns whether it did."""
        if not self.rewriter.stale_types:
            return False
        self.rewriter.stale_types = False
        if all(map(_is_fixed, self.model.graphs())):
            return False
        self.infer()
        return True

    def run_rules(self, rules: Sequence[RuleOrWaiting], *, once: bool = False) -> int:
        """Run rules in one worklist until none fires.

        Args:
            rules: in order of preference: at a node the first that fires wins. Rules that are not imported yet are
                imported once the model has the operators that they need.
            once: do not seed the worklist with the whole graph again after a round; the caller repeats.

        Returns:
            The number of rewrites.

        Raises:
            RewriteLoopError: (when strict) the rules do not reach a fixpoint.
        """
        rules = tuple(rules)
        if self._is_quiet(rules) or self._is_quiet((rules,)):
            return 0
        before = len(self.log.events)
        mark = self._journal.mark()
        limit = before + 20 * sum(len(g) for g in self.model.graphs()) + 1000
        try:
            with sealed():
                while not self.log.full:
                    at_start = len(self.log.events)
                    self._look()
                    for graph in reversed(list(self.model.graphs())):
                        if not self.log.full and (graph.owner is None or not graph.owner.removed):
                            self._drain(graph, rules, limit)
                    self._looked_at = self._state()  # operators that rules added are in `_present`
                    if len(self.log.events) == at_start:
                        self._note_quiet(rules)
                        break
                    if once:
                        break
        except RewriteLoopError as error:
            if self.strict:
                raise
            self._journal.undo(mark)
            del self.log.events[before:]
            self.log.failures.append(Failure("worklist", None, error))
            self._note_quiet((rules,))
        self._journal.forget()
        return len(self.log.events) - before

    def _look(self) -> None:
        """Collect the operators of all graphs: those that a rule needs may be in another graph than it changes."""
        if self._looked_at != self._state():
            for graph in self.model.graphs():
                self._present.update([node.op for node in graph.listed()])
            if self.model.functions:
                self._present.add(FUNCTIONS)
            self._looked_at = self._state()

    def _table(self, rules: tuple[RuleOrWaiting, ...], opset: int) -> Table:
        """The dispatch table of the rules whose operators have been seen so far."""
        known, left, table = self._known.get((rules, opset), (0, rules, {}))
        if known != len(self._present):
            waiting = tuple([rule for rule in left if rule not in self._ready and self._lacks(rule)])
            if len(waiting) < len(left):
                self._ready.update(set(rules).difference(waiting))  # operators are never removed from `_present`
                asked = tuple([rule for rule in rules if rule in self._ready and self._is_sound(rule, opset)])
                table = self.tables.table(asked, opset, silent=not self.log.listen)
            self._known[rules, opset] = len(self._present), waiting, table
        return table

    def _lacks(self, rule: Rule | Waiting) -> bool:
        """Whether a pass that is not imported yet cannot apply; never if near misses are logged."""
        return isinstance(rule, Waiting) and not self.log.listen and rule.card.lacks(self._present)

    def _is_sound(self, rule: RuleOrWaiting, opset: int) -> bool:
        """Whether a dispatch entry can be built for a rule; a failure is logged once."""
        self.log.of(rule.name)
        if (rule, opset) in self._broken:
            return False
        try:
            self.tables.entry(rule, opset, silent=not self.log.listen)
        except BaseException as error:  # for example, a pattern that cannot be compiled
            self._isolate(rule.name, None, error, self._journal.mark(), len(self.log.events))
            self._broken.add((rule, opset))
            return False
        return True

    def _drain(self, graph: Graph, rules: tuple[RuleOrWaiting, ...], limit: int) -> None:
        present = self._present
        table, known = self._table(rules, graph.opset()), len(present)
        queue = deque([node for node in graph.listed() if node.op in table and not node.removed])
        waiting = set(queue)
        rewriter = self.rewriter
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            if node.removed:
                continue
            asked = table[node.op].at(node)
            if not asked or not self._visit(node, asked):
                continue
            if len(self.log.events) > limit:
                raise self._loop()
            if self.log.full:
                return
            present.update([touched.op for touched in rewriter._touched])
            if len(present) != known:
                table, known = self._table(rules, graph.opset()), len(present)
            for again in (node, *_neighbours(rewriter._touched)):
                if again not in waiting and not again.removed and again.op in table and again.graph is graph:
                    waiting.add(again)
                    queue.append(again)
            rewriter._touched.clear()

    def _visit(self, node: Node, attempts: list[RuleAttempt]) -> bool:
        """Try rules at a node in turn until one fires; reasons are logged if `listen` is set."""
        rewriter, log, changes = self.rewriter, self.log, self._journal.log
        listen, profile, counts = log.listen, log.profile, log.stats
        mark, events = len(changes), len(log.events)
        start = 0.0
        rewriter._origin, rewriter._graph = node, node.graph
        for each in attempts if not self._failed else self._left(node, attempts):
            name = each.name
            stats = counts[name]
            stats.attempts += 1
            rewriter._rule = name
            if rewriter._pending_nodes or rewriter._pending_constants:
                rewriter._drop_pending()
            if profile:
                start = perf_counter()
            try:
                fired = each.run(node, rewriter) is not None
                if fired and len(log.events) == events:
                    raise PassError("it reported a rewrite but made none")
            except Decline as declined:
                fired = False
                declined.__traceback__ = None  # if a rule kept it, it would hold its own frame
                if listen and declined.args:
                    self._note(name, node, declined, mark, events)
            except BaseException as error:
                self._isolate(name, node, error, mark, events)
                continue
            if profile:
                stats.seconds += perf_counter() - start
            if fired:
                stats.hits += 1
                if self.check:
                    self._verify(name, node)
                return True
            if len(changes) != mark:
                self._take_back(name, node, mark, events)
        return False

    def _take_back(self, rule: str, node: Node, mark: int, events: int) -> None:
        """Undo the changes of an attempt that declined."""
        if self.check and len(self.log.events) > events:
            raise PassError(f"pass {rule} declined at {NodeNote.of(node)} after it had changed the graph")
        self._undo(mark, events)

    def _undo(self, mark: int, events: int) -> None:
        self._journal.undo(mark)
        del self.log.events[events:]
        self.rewriter._touched.clear()
        self.rewriter._drop_pending()

    def _isolate(self, rule: str, node: Node | None, error: BaseException, mark: int, events: int) -> None:
        """Undo the changes of a pass that raised, and log the failure.

        Any exception of a pass is its failure, including `SystemExit`; only the user can interrupt the run.
        """
        note = NodeNote.of(node) if node is not None else None
        self._undo(mark, events)
        if isinstance(error, KeyboardInterrupt):
            raise error
        if self.strict or (self.check and isinstance(error, EngineError)):
            where = f" at {note}" if note is not None else ""
            raise PassError(f"pass {rule} failed{where}: {type(error).__name__}: {error}") from error
        self.model.verify()
        self._failed.setdefault(rule, set()).add(node)
        self.log.failures.append(Failure(rule, note, error))

    def _note(self, rule: str, node: Node, declined: Decline, mark: int, events: int) -> None:
        """Log why a rule declined; a rule that gives no valid reason has failed."""
        try:
            self.rewriter.note(rule, node, declined)
        except BaseException as error:
            self._isolate(rule, node, error, mark, events)

    def _left(self, node: Node, attempts: list[RuleAttempt]) -> list[RuleAttempt]:
        """The attempts of rules that have not raised before."""
        return [each for each in attempts if not self._gave_up(each.name, node)]

    def _gave_up(self, rule: str, node: Node) -> bool:
        failed = self._failed.get(rule, ())
        return node in failed or len(failed) >= _FAILURES_ALLOWED

    def _verify(self, rule: str, node: Node) -> None:
        try:
            self.model.verify()
        except EngineError as error:
            raise EngineError(f"after {rule} at {NodeNote.of(node)}: {error}") from error

    def _loop(self) -> RewriteLoopError:
        last = "\n".join(f"  {event}" for event in self.log.events[-10:])
        return RewriteLoopError(f"rewrites do not terminate; the last ten were\n{last}")

    def run_pass(self, graph_pass: GraphPass | Waiting) -> int:
        """Run a graph pass once over the model. Returns the number of rewrites."""
        name = (graph_pass.name,)
        if self.log.full or self._is_quiet(name):
            return 0
        stats = self.log.of(graph_pass.name)
        if isinstance(graph_pass, Waiting) and graph_pass.card.needs:
            self._look()
            if self._lacks(graph_pass):
                return 0
        events = len(self.log.events)
        mark = self._journal.mark()
        start = perf_counter()
        self.rewriter.enter(self.model.graph, graph_pass.name)
        try:
            with sealed():
                rule: Any = graph_pass.rule if isinstance(graph_pass, Waiting) else graph_pass
                if not rule.knows_opset(self.model.opset()):
                    return 0
                stats.attempts += 1
                with suppress(LimitReached):
                    rule.run_model(self.model, self.rewriter)
            if self.check and len(self.log.events) > events:
                self.model.verify()
        except BaseException as error:
            self._isolate(graph_pass.name, None, error, mark, events)
        stats.seconds += perf_counter() - start
        self.rewriter._touched.clear()
        self._journal.forget()
        done = len(self.log.events) - events
        stats.hits += done
        if not done:
            self._note_quiet(name)
        return done

    def run(self, rules: Sequence[Rule]) -> int:
        """Run a mixed sequence: adjacent rules share a worklist, graph passes run one by one."""
        count = 0
        group: list[OpRule | PatternRule] = []
        for rule in rules:
            if isinstance(rule, GraphPass):
                count += self.run_rules(group) if group else 0
                group = []
                count += self.run_pass(rule)
            elif isinstance(rule, (OpRule, PatternRule)):
                group.append(rule)
        return count + (self.run_rules(group) if group else 0)


def _is_fixed(graph: Graph) -> bool:
    """Whether all results in a graph, and inputs of a body, have fixed shapes, so that inference adds nothing.

    Functions have no shapes.
    """
    if graph.in_function:
        return True
    given: Iterable[Value | None] = graph.inputs if graph.owner is not None else ()
    for value in chain(given, chain.from_iterable(node.outputs for node in graph.listed())):
        if value is not None:
            shape = value.shape
            if shape is None:
                return False
            for dim in shape:
                if type(dim) is not int:
                    return False
    return True


def _neighbours(nodes: list[Node]) -> list[Node]:
    """The nodes and their readers: the root of a pattern may be one or two steps below."""
    found: dict[Node, object] = dict.fromkeys(nodes)
    for node in list(found):
        for value in node.outputs if len(node.outputs) <= _MOST_OUTPUTS else ():
            if value is not None and len(value.users) <= _MOST_READERS:
                for user in value.users:
                    found[user] = None
                    for below in user.outputs if len(user.outputs) <= _MOST_OUTPUTS else ():
                        if below is not None and len(below.users) <= _MOST_READERS:
                            found.update(below.users)
    return list(found)
