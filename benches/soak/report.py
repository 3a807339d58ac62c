"""Figures of a soak test: slopes of memory, and an SVG of memory, descriptors, threads and latency over time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

MIB = 1024 * 1024
#: Latencies are counted in buckets, each 12 % wider than the one before.
BASE = 1.12

COLORS = ["#1a7f64", "#b3402e", "#2f6db3", "#8a5aa8", "#b07d1a", "#5d6b76", "#c2528b", "#3f8f2f"]
WIDTH, LEFT, RIGHT, HEIGHT, GAP = 960, 70, 250, 170, 62


def bucket(seconds: float) -> int:
    """The bucket of a latency."""
    return round(math.log(max(seconds, 1e-6) * 1e6) / math.log(BASE))


def percentile(counts: dict[str, int], percent: float) -> float | None:
    """A percentile of counted latencies, in milliseconds."""
    total = sum(counts.values())
    seen = 0
    for index in sorted(counts, key=int):
        seen += counts[index]
        if seen >= total * percent / 100:
            return BASE ** int(index) / 1000
    return None


def read(path: Path) -> list[dict]:
    """All complete lines of the file."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def processes(samples: Iterable[dict]) -> dict[tuple[str, int, int], list[tuple[float, float, dict]]]:
    """The samples of each process: by name, run and process id; each with its hours since the start and its age."""
    found: dict[tuple[str, int, int], list[tuple[float, float, dict]]] = {}
    for sample in samples:
        for one in sample["processes"]:
            key = (one["name"], sample["run"], one["pid"])
            found.setdefault(key, []).append((sample["hours"], one["age"], one))
    return found


def slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The slope of a regression line, and its standard error."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    found = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    left = sum((y - mean_y - found * (x - mean_x)) ** 2 for x, y in points)
    return found, math.sqrt(left / max(count - 2, 1) / spread)


def slopes(samples: list[dict], after: float) -> str:
    """A table of the slopes of memory, for each process that lived long enough."""
    lines = [
        f"| process | samples after {after:g} min | over, h | MiB at their begin | at their end | highest | MB/h | ± |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    short: dict[str, int] = {}
    for (name, run, pid), found in sorted(processes(samples).items()):
        late = [(hours, one["rss"]) for hours, age, one in found if age >= after * 60]
        if len(late) < 10:
            short[name] = short.get(name, 0) + 1
            continue
        rate, error = slope([(hours, rss / 1e6) for hours, rss in late])
        top = max(one["rss"] for _, _, one in found)
        lines.append(
            f"| {name} (run {run}, process {pid}) | {len(late)} | {late[-1][0] - late[0][0]:.2f} "
            f"| {late[0][1] / MIB:.1f} | {late[-1][1] / MIB:.1f} | {top / MIB:.1f} | {rate:+.2f} | {error:.2f} |"
        )
    if short:
        lines += [
            "",
            "Too short-lived for a slope: "
            + ", ".join(f"{name} ({count})" for name, count in sorted(short.items()))
            + ".",
        ]
    return "\n".join(lines)


def merged_latency(samples: Iterable[dict]) -> dict[str, dict[str, int]]:
    """The counted latencies of several samples by group."""
    merged: dict[str, dict[str, int]] = {}
    for sample in samples:
        for group, histogram in sample["latency"].items():
            of_group = merged.setdefault(group, {})
            for index, count in histogram.items():
                of_group[index] = of_group.get(index, 0) + count
    return merged


def summary(lines: list[dict]) -> str:
    """The length of the test, counts of requests, and what went wrong."""
    samples = [line for line in lines if line["event"] == "sample"]
    counts: dict[str, dict[str, int]] = {}
    for run in sorted({sample["run"] for sample in samples}):
        last = [sample for sample in samples if sample["run"] == run][-1]
        for kind, results in last["counts"].items():
            for result, count in results.items():
                of_kind = counts.setdefault(kind, {})
                of_kind[result] = of_kind.get(result, 0) + count
    total = sum(count for results in counts.values() for count in results.values())
    wrong = sum(results.get("wrong", 0) for results in counts.values())
    length = f"{samples[-1]['hours']:.2f} h in {samples[-1]['run']} runs"
    text = [f"{total:,} requests in {length}; {wrong:,} were not answered as they should.", ""]
    text += ["| request | ok | rejected | wrong |", "|---|---:|---:|---:|"]
    for kind, results in sorted(counts.items()):
        text.append(
            f"| {kind} | {results.get('ok', 0):,} | {results.get('rejected', 0):,} | {results.get('wrong', 0):,} |"
        )
    text += ["", "| latency | requests | p50 ms | p99 ms | p99.9 ms |", "|---|---:|---:|---:|---:|"]
    for group, histogram in sorted(merged_latency(samples).items()):
        figures = " | ".join(f"{percentile(histogram, percent):.2f}" for percent in (50, 99, 99.9))
        text.append(f"| {group} | {sum(histogram.values()):,} | {figures} |")
    events: dict[str, int] = {}
    for line in lines:
        if line["event"] not in ("sample", "wrong"):
            events[line["event"]] = events.get(line["event"], 0) + 1
    text += ["", "Events: " + ", ".join(f"{name} {count}" for name, count in sorted(events.items())) + "."]
    for line in [line for line in lines if line["event"] in ("wrong", "server ended")][:10]:
        text.append(
            f"- at {line['hours']:.3f} h: {json.dumps({key: value for key, value in line.items() if key != 'hours'})[:400]}"
        )
    return "\n".join(text)


def panel(top: int, title: str, series: dict[str, list[list[tuple[float, float]]]], hours: float) -> list[str]:
    """One diagram: a line for each list of points, one color for each name."""
    every = [value for lines in series.values() for line in lines for _, value in line]
    highest = max(every, default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(highest))
    step = next(step * factor for factor in (0.2, 0.5, 1, 2) if highest / (step * factor) <= 5)
    highest = math.ceil(highest / step) * step
    found = [f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{title}</text>']
    inner = WIDTH - LEFT - RIGHT
    for index in range(round(highest / step) + 1):
        y = top + HEIGHT - HEIGHT * index * step / highest
        found.append(
            f'<line x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc" stroke-width="0.5"/>'
        )
        found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{index * step:g}</text>')
    for at in range(7):
        x = LEFT + inner * at / 6
        found.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{hours * at / 6:.3g} h</text>')
    for index, (name, lines) in enumerate(sorted(series.items())):
        color = COLORS[index % len(COLORS)]
        for line in lines:
            points = " ".join(
                f"{LEFT + inner * x / hours:.1f},{top + HEIGHT - HEIGHT * value / highest:.1f}" for x, value in line
            )
            found.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.2"/>')
        last = lines[-1][-1][1] if lines and lines[-1] else 0
        label = f"{name}: {last:.4g}"
        found.append(f'<text x="{LEFT + inner + 10}" y="{top + 12 + 16 * index}" style="fill:{color}">{label}</text>')
    return found


def thin(line: list[tuple[float, float]], most: int = 600) -> list[tuple[float, float]]:
    """Keeps the highest point of each group of neighbors, so that a long test makes a small file."""
    size = max(1, math.ceil(len(line) / most))
    return [max(line[at : at + size], key=lambda point: point[1]) for at in range(0, len(line), size)]


def draw(lines: list[dict]) -> str:
    """The diagrams as SVG."""
    samples = [line for line in lines if line["event"] == "sample"]
    hours = max(samples[-1]["hours"], 1e-3)
    found = processes(samples)

    def of(figure: Callable[[dict], float]) -> dict[str, list[list[tuple[float, float]]]]:
        series: dict[str, list[list[tuple[float, float]]]] = {}
        for (name, _, _), points in found.items():
            series.setdefault(name, []).append(thin([(at, figure(one)) for at, _, one in points]))
        return series

    latency: dict[str, list[list[tuple[float, float]]]] = {}
    width = max(1, len(samples) // 120)
    for run in sorted({sample["run"] for sample in samples}):
        of_run = [sample for sample in samples if sample["run"] == run]
        lines_of_run: dict[str, list[tuple[float, float]]] = {}
        for at in range(0, len(of_run), width):
            for group, histogram in merged_latency(of_run[at : at + width]).items():
                lines_of_run.setdefault(group, []).append((of_run[at]["hours"], percentile(histogram, 99) or 0.0))
        for group, line in lines_of_run.items():
            latency.setdefault(group, []).append(line)
    panels = [
        ("Resident memory, MiB", of(lambda one: one["rss"] / MIB)),
        ("Open descriptors", of(lambda one: one["fds"])),
        ("Threads", of(lambda one: one["threads"])),
        ("Latency, p99, ms", latency),
    ]
    parts, top = [], 34
    for title, series in panels:
        parts += panel(top, title, series, hours)
        top += HEIGHT + GAP
    label = f"A soak test over {hours:.1f} hours"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - 20}" role="img" aria-label="{label}">'
    style = "<style>text{font:12px system-ui,sans-serif;fill:#555}</style>"
    return "\n".join([start, style, *parts, "</svg>"])
