"""Draws the contributions of three irises, as a server with the models of `examples/quickstart` answers them.

python3 docs/assets/contributions.py http://localhost:8080 > docs/assets/contributions.svg
"""

import json
import sys
import urllib.request

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
ROWS = [[5.1, 3.5, 1.4, 0.2], [5.9, 3.0, 4.2, 1.5], [6.2, 2.8, 4.8, 1.8]]
# the class whose margin is explained
GROUP = 2
WIDTH, LEFT, BAR, GAP = 720, 150, 18, 26


def ask(url):
    """Returns the contributions and the bias of each row for the class."""
    body = json.dumps({"instances": ROWS}).encode()
    request = urllib.request.Request(
        f"{url}/v1/models/iris-xgboost:explain", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        explanations = json.load(answer)["explanations"]
    return [row[GROUP] for row in explanations["contributions"]], explanations["bias"][GROUP]


def draw(rows, bias):
    """Returns bars from 0, to the right if a feature adds to the margin."""
    largest = max(abs(value) for row in rows for value in row)
    middle = LEFT + (WIDTH - LEFT) / 2
    scale = (WIDTH - LEFT - 120) / 2 / largest
    lines, y = [], 24
    for flower, values in zip(ROWS, rows):
        margin = sum(values) + bias
        text = f"flower {', '.join(map(str, flower))} cm: bias {bias:.2f}, margin {margin:.2f}"
        lines.append(f'<text x="8" y="{y}" font-weight="bold">{text}</text>')
        y += 12
        for name, value in zip(NAMES, values):
            width = max(abs(value) * scale, 1)
            start = middle if value >= 0 else middle - width
            color, anchor, at = (
                ("#1a7f64", "start", middle + width + 6) if value >= 0 else ("#b3402e", "end", start - 6)
            )
            lines.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
            lines.append(f'<rect x="{start:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{color}"/>')
            lines.append(f'<text x="{at:.1f}" y="{y + 14}" text-anchor="{anchor}">{value:+.2f}</text>')
            y += GAP
        y += 26
    label = "Contributions of four features of three irises to the margin of the class virginica"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 20}" role="img" aria-label="{label}">'
    style = "<style>text{font:13px system-ui,sans-serif;fill:#555}</style>"
    return "\n".join([start, style, *lines, "</svg>"])


if __name__ == "__main__":
    print(draw(*ask(sys.argv[1])))
