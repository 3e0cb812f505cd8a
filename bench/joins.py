"""Is what pack, forward and fuse_readers choose also faster in the simulator? Each choice against the other way.

    python bench/joins.py [--models A,B] [--chips X,Y] [--passes P,Q] [--out bench/results/joins]

Of every model one layer (and a small vocabulary), decode and prompt, and its independent products over 256 rows (of
narrow models q, k and v over 1,024 too: so many that each fills the chip); the time of the waves that a choice changes
(those too whose plans change with the local memory that it takes), as chosen and with that one choice the other way:

    pack          a run of independent sections at once, or one after the other
    channels      a section that runs by itself along the sites beside the DRAM channels, or on all sites
    forward       a tensor with a copy on every site, or beside the chip, the other tensors as chosen
    fuse_readers  a FIFO of one section multicast, or local, the other FIFOs as chosen

Right: what was chosen is not slower; two that are within 0.5 % of each other count as right and are also counted by
themselves. What cannot be the other way (no memory, no counters) is no comparison. Simulated cycles are without the
launch. Where a chip has no right example of `pack` taken, or of not taken, more runs are looked through, by prediction,
until one is found: the same products over 1 to 2,048 rows, and q, k and v of other contracts and weights. The table
goes to OUT.md, every comparison to OUT.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from dataclasses import replace as with_fields
from pathlib import Path

from model_shapes import MODELS, stored_weights
from msgspec.structs import replace

from pavane import api
from pavane.ir.digest import digest
from pavane.ir.program import Join, Program, Shape
from pavane.ir.types import Contract, StoredWeights
from pavane.passes.adjacent import ADJACENT, by_itself
from pavane.passes.compose import compose
from pavane.passes.forward import Forwarded, forward, with_copies
from pavane.passes.fuse_readers import with_readers
from pavane.passes.interleave import interleave
from pavane.passes.pack import at_place, best_wave, independent_runs, pack, part_of
from pavane.passes.planning import Planning
from pavane.passes.reader_sharing import Kinds
from pavane.passes.tile import tile
from pavane.pipeline import PASS_ORDER
from pavane.reject import SpatialReject
from pavane.sim import simulate
from pavane.targets.descriptor import SpatialTarget, target_digest
from pavane.targets.load import load_target
from pavane.tensor_graph.decoder import DecoderConfig
from pavane.tensor_graph.graph import Graph

CHIPS = ("wormhole_n150", "blackhole_p150", "sn40l", "xdna2")
PASSES = ("pack", "channels", "forward", "fuse_readers")
_VOCABULARY, _CONTEXT = 2048, 2048
_MANY_ROWS, _MOST_ROWS, _NARROW = 256, 1024, 1024
_SEARCHED_ROWS = (1, 8, 64, 128, 512, 2048)
_SEARCHED_DECODERS: tuple[tuple[StoredWeights, Contract], ...] = (("q8_0", "INT8_ACTIVATIONS"), ("bfp8", "FLOAT"))
_TIE = 0.005
_NEW_WAVE = 1 << 20  # above all that are
_RESULTS = Path(__file__).parent / "results" / "joins"
_READER = "reader of "


@dataclass(frozen=True)
class Compared:
    """A choice: what was taken and what not, each with predicted and simulated cycles."""

    model: str
    chip: str
    program: str
    join: str
    what: str
    taken: str
    other: str
    predicted: int
    predicted_other: int
    simulated: int
    simulated_other: int

    @property
    def is_tie(self) -> bool:
        return abs(self.simulated - self.simulated_other) <= _TIE * self.simulated_other

    @property
    def is_right(self) -> bool:
        return self.is_tie or self.simulated < self.simulated_other

    @property
    def is_joined(self) -> bool:
        return not self.taken.startswith(("one after the other", "on all sites", "beside the chip", "local"))


def main() -> None:
    """Compare, and write both files."""
    arguments = _arguments()
    found: list[Compared] = []
    for model in arguments.models.split(","):
        for chip in arguments.chips.split(","):
            for program, source in _sources(MODELS[model]):
                name = (model, chip, program)
                for one in _Deciding(source, load_target(chip)).compared(name, arguments.passes.split(",")):
                    print(*name, one.what, f"{one.simulated} {one.simulated_other} right={one.is_right}", flush=True)
                    found.append(one)
    if "pack" in arguments.passes.split(","):
        for chip in arguments.chips.split(","):
            found += _searched(arguments.models.split(","), chip, found)
    write(found, arguments.out)


def write(found: Sequence[Compared], out: Path) -> None:
    """The comparisons as OUT.json, their shares and examples as OUT.md."""
    out.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{out}.json").write_text(json.dumps([asdict(one) for one in found], indent=0) + "\n")
    Path(f"{out}.md").write_text("\n".join([*_shares(found), "", *_examples(found), "", *_wrong(found)]) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--out", type=Path, default=_RESULTS)
    return parser.parse_args()


def _sources(config: DecoderConfig) -> Iterator[tuple[str, api.Source]]:
    """One layer of a decoder with its ends, and its independent products over many rows."""
    yield from _layer(config, "q8_0", "FLOAT")
    yield from _independent(config, _MANY_ROWS)
    if config.width <= _NARROW:
        yield next(_independent(config, _MOST_ROWS))


def _layer(config: DecoderConfig, weights: StoredWeights, contract: Contract) -> Iterator[tuple[str, api.Source]]:
    """One layer of a decoder with its ends."""
    local = tuple(n for n in config.local_layers if n < 1)
    one = replace(config, layers=1, vocabulary=_VOCABULARY, local_layers=local)
    for rows, name in ((1, "decode"), ("rows", "prompt")):
        yield name, api.decoder(one, stored_weights(one, weights), rows=rows, contract=contract, context=_CONTEXT)


def _independent(config: DecoderConfig, rows: int) -> Iterator[tuple[str, api.Source]]:
    """q, k and v, then gate and up, over so many rows."""
    of_heads = [count * config.head_width for count in (config.heads, config.kv_heads, config.kv_heads)]
    yield f"q, k, v of {rows} rows", _products(rows, config.width, of_heads)
    yield f"gate, up of {rows} rows", _products(rows, config.width, [config.feed_forward] * 2)


def _products(rows: int, depth: int, widths: Sequence[int]) -> api.Source:
    """Products of one input over many rows, of these widths."""
    authored = Graph("products")
    given = authored.input("a", (rows, depth), "bf16")
    for number, width in enumerate(widths):
        weight = authored.weight(f"w{number}", (depth, width), "bf16")
        authored.output(f"y{number}", authored.matmul(given, weight))
    return api.graph(authored)


def _searched(models: Sequence[str], chip: str, found: Sequence[Compared]) -> Iterator[Compared]:
    """Of each answer of `pack` that has no right example on the chip, the first one; nothing where there is none."""
    target, here = load_target(chip), [one for one in found if one.join == "pack" and one.chip == chip and one.is_right]
    missing = {True, False} - {one.is_joined for one in here}
    for model, program, source in _more_sources(models) if missing else ():
        for one in _answers(source, target, (model, chip, program), missing):
            print(
                model,
                chip,
                program,
                one.what,
                f"{one.simulated} {one.simulated_other} right={one.is_right}",
                flush=True,
            )
            yield one
            missing -= {one.is_joined} if one.is_right else set()
        if not missing:
            return


def _more_sources(models: Sequence[str]) -> Iterator[tuple[str, str, api.Source]]:
    for model in models:
        for weights, contract in _SEARCHED_DECODERS:
            for name, source in _layer(MODELS[model], weights, contract):
                yield model, f"{name}, {weights}, {contract}", source
    for rows in _SEARCHED_ROWS:
        for model in models:
            for name, source in _independent(MODELS[model], rows):
                yield model, name, source


def _answers(
    source: api.Source, target: SpatialTarget, name: tuple[str, str, str], missing: set[bool]
) -> Iterator[Compared]:
    """The comparisons of `pack` in a program that has, by prediction, an answer that is missing."""
    try:
        sections = interleave(source.sections(target), target)
    except SpatialReject:  # no engine for such weights
        return
    packed = pack(sections, target, Planning())
    joins = (join for section in packed.sections for join in section.shapes[0].joins)
    if any(join.taken.startswith("at once") in missing for join in joins if join.what.startswith("pack ")):
        compared = _Deciding(source, target).compared(name, ("pack",))
        yield from (one for one in compared if one.is_joined in missing)


class _Deciding:
    """A program with its choices made; remembers the sections that it has compiled and the times of programs."""

    def __init__(self, source: api.Source, target: SpatialTarget) -> None:
        self._target, self._planning = target, Planning()
        self._packed = pack(interleave(source.sections(target), target), target, self._planning)
        self._forwarded = forward(self._packed, target, self._planning)
        self._compiled: dict[str, Program] = {}
        self._cycles: dict[tuple[Forwarded, tuple[int, ...]], int] = {}

    def compared(self, name: tuple[str, str, str], passes: Sequence[str]) -> Iterator[Compared]:
        """Every choice that can be made the other way."""
        of_pass = {
            "pack": self._pack,
            "channels": self._channels,
            "forward": self._forward,
            "fuse_readers": self._fuse_readers,
        }
        for wanted in passes:
            for join, taken, other in of_pass[wanted]():
                times = _cycles_of(taken), _cycles_of(other)
                if times[0] is not None and times[1] is not None:
                    words = (join.what, join.taken, join.other, join.cycles, join.other_cycles)
                    yield Compared(*name, wanted, *words, times[0], times[1])

    def _pack(self) -> Iterator[tuple[Join, _Timed, _Timed]]:
        for run in independent_runs(self._packed.sections, self._target):
            members = [self._packed.sections[i] for i in run]
            wave = best_wave(members, self._target, self._planning) if len(run) > 1 else None
            joins = [join for join in members[0].shapes[0].joins if join.what.startswith("pack ")]
            if wave is None or not joins:
                continue
            alone = [by_itself(member, self._target, self._planning)[0] for member in members]
            together, apart = (
                self._with(run, wave.places, [_NEW_WAVE] * len(run)),
                self._with(run, alone, range(_NEW_WAVE, _NEW_WAVE + len(run))),
            )
            taken, other = (together, apart) if joins[0].taken.startswith("at once") else (apart, together)
            yield joins[0], self._timed(taken, run), self._timed(other, run)

    def _channels(self) -> Iterator[tuple[Join, _Timed, _Timed]]:
        whole, seen = (0, 0, self._target.grid.width, self._target.grid.height), set()
        for number, section in enumerate(self._packed.sections):
            key = self._planning.key(section)
            joins = [join for join in section.shapes[0].joins if join.what.startswith("channels ")]
            if not joins or key in seen:
                continue
            seen.add(key)
            run = range(number, number + 1)
            beside, everywhere = (
                self._timed(self._with(run, [place], [_NEW_WAVE]), run) for place in (ADJACENT, whole)
            )
            yield joins[0], *((everywhere, beside) if joins[0].taken == "on all sites" else (beside, everywhere))

    def _with(self, run: range, places: Sequence[tuple[int, int, int, int]], waves: Sequence[int]) -> Forwarded:
        """The sections with a run placed otherwise."""
        packed = self._forwarded.packed
        new_places, new_waves = list(packed.places), list(packed.waves)
        new_places[run.start : run.stop], new_waves[run.start : run.stop] = places, waves
        moved = with_fields(packed, places=tuple(new_places), waves=tuple(new_waves))
        return with_fields(self._forwarded, packed=moved)

    def _forward(self) -> Iterator[tuple[Join, _Timed, _Timed]]:
        packed = self._forwarded.packed
        chosen = frozenset(t.name for s in packed.sections for t in s.tensors if t.home == "sites")
        for join in dict.fromkeys(j for s in packed.sections for j in s.shapes[0].joins):
            if join.what.startswith("forward "):
                tensor = join.what.split()[1]
                flipped = with_copies(self._packed, chosen ^ {tensor}, self._target)
                yield join, self._differing(self._forwarded, flipped), self._differing(flipped, self._forwarded)

    def _differing(self, mine: Forwarded, other: Forwarded) -> _Timed:
        """The waves of a program in which a section is compiled to another one than in the other program."""

        def timed() -> int:
            waves = mine.packed.waves
            differ = {wave for i, wave in enumerate(waves) if self._shape(mine, i) != self._shape(other, i)}
            return self._cycles_together(mine, tuple(i for i, wave in enumerate(waves) if wave in differ))

        return timed

    def _shape(self, of: Forwarded, number: int) -> Shape:
        section = self._section(of.packed.sections[number], part_of(of.target, of.packed.places[number]))
        return replace(section.shapes[0], joins=(), plan=None)

    def _fuse_readers(self) -> Iterator[tuple[Join, _Timed, _Timed]]:
        packed, seen = self._forwarded.packed, set()
        for section, place in zip(packed.sections, packed.places, strict=True):
            key = self._planning.key(section), place[2:]
            part = part_of(self._forwarded.target, place)
            fused = self._planning.fused(section, part)
            if key in seen or fused is None:
                continue
            seen.add(key)
            joins = [join for join in fused.shapes[0].joins if join.what.startswith(_READER)]
            taken = {_fifo(j): _kind(j.taken) for j in joins if j.taken != "local"}
            for join in joins:
                rest = {fifo: kind for fifo, kind in taken.items() if fifo != _fifo(join)}
                flipped = rest if _fifo(join) in taken else {**taken, _fifo(join): _kind(join.other)}
                named = replace(join, what=f"{join.what} in {section.shapes[0].name}")
                yield named, self._alone(section, part, taken), self._alone(section, part, flipped)

    def _alone(self, section: Program, part: SpatialTarget, kinds: Kinds) -> _Timed:
        return lambda: _simulated(compose(section.name, [self._section(section, part, kinds)], part), part)

    def _timed(self, forwarded: Forwarded, which: Sequence[int]) -> _Timed:
        """These sections of a program, and no others."""
        return lambda: self._cycles_together(forwarded, tuple(which))

    def _cycles_together(self, forwarded: Forwarded, which: tuple[int, ...]) -> int:
        key = forwarded, which
        if key not in self._cycles:
            packed = forwarded.packed
            done = [
                at_place(self._section(packed.sections[i], part_of(forwarded.target, place)), place, wave, self._target)
                for i, place, wave in ((i, packed.places[i], packed.shared_waves[i]) for i in which)
            ]
            self._cycles[key] = _simulated(compose("part", done, self._target), self._target)
        return self._cycles[key]

    def _section(self, section: Program, part: SpatialTarget, kinds: Kinds | None = None) -> Program:
        """A section through every pass but the last; `kinds`: what is multicast, whatever the comparison says."""
        key = digest([section, target_digest(part), tuple(sorted((kinds or {}).items())), kinds is None])
        if key not in self._compiled:
            self._compiled[key] = self._through_passes(section, part, kinds)
        return self._compiled[key]

    def _through_passes(self, section: Program, part: SpatialTarget, kinds: Kinds | None) -> Program:
        program = tile(replace(section, target_digest=target_digest(part)), part)
        for entry in PASS_ORDER[1:-1]:
            forced = entry.name == "fuse_readers" and kinds is not None
            program = with_readers(program, kinds or {}) if forced else entry.run(program, part)
        return program


_Timed = Callable[[], int]


def _cycles_of(timed: _Timed) -> int | None:
    try:
        return timed()
    except SpatialReject:
        return None


def _simulated(program: Program, target: SpatialTarget) -> int:
    symbols = {symbol.name: symbol.expected for symbol in program.symbols}
    return simulate(program, target, symbols=symbols, functional=False).cycles - target.launch.cycles


def _fifo(join: Join) -> str:
    return join.what.removeprefix(_READER)


def _kind(word: str) -> str:
    return word.upper().replace(" ", "_")


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    for row in (headings, ["---"] * len(headings), *rows):
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def _shares(found: Sequence[Compared]) -> Iterator[str]:
    """Right of all comparisons, by model, chip and pass."""
    yield "Right of all, and of these within 0.5 % of each other:\n"
    models = list(dict.fromkeys(one.model for one in found))
    rows = []
    for join in PASSES:
        for chip in dict.fromkeys(one.chip for one in found):
            here = [one for one in found if one.join == join and one.chip == chip]
            cells = [_share([one for one in here if one.model == model]) for model in models]
            rows.append((join, chip, *cells, _share(here)))
    yield from _table(("pass", "chip", *models, "all"), rows)


def _share(found: Sequence[Compared]) -> str:
    if not found:
        return "none"
    right, ties = sum(one.is_right for one in found), sum(one.is_tie for one in found)
    return f"{right} of {len(found)} ({100 * right // len(found)} %), {ties} even"


def _examples(found: Sequence[Compared]) -> Iterator[str]:
    """By pass and chip the joined and the not joined that matter most in the simulator."""
    yield "For each pass and chip, joined and not joined: the right choice whose simulated times differ most:\n"
    rows = []
    for join in PASSES:
        for chip in dict.fromkeys(one.chip for one in found):
            for is_joined in (True, False):
                of_kind = [o for o in found if (o.join, o.chip, o.is_joined) == (join, chip, is_joined) and o.is_right]
                best = max(of_kind, key=lambda o: o.simulated_other / o.simulated, default=None)
                cells = ["none", *[""] * 5] if best is None else _cells(best)
                rows.append((join, chip, "joined" if is_joined else "not joined", *cells))
    yield from _table(("pass", "chip", "", *_COLUMNS), rows)


_COLUMNS = ("section", "taken", "predicted", "simulated", "other predicted", "other simulated")


def _cells(one: Compared) -> tuple[object, ...]:
    where = f"{one.model} {one.program}: {one.what}"
    return where, one.taken, one.predicted, one.simulated, one.predicted_other, one.simulated_other


def _wrong(found: Sequence[Compared]) -> Iterator[str]:
    """What the simulator would have chosen otherwise."""
    yield "Wrong by simulation:\n"
    wrong = [one for one in found if not one.is_right]
    yield from _table(("pass", "chip", *_COLUMNS), [(one.join, one.chip, *_cells(one)) for one in wrong])


if __name__ == "__main__":
    main()
