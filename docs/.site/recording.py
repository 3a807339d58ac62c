"""Records `mlserver infer` in a terminal: `MLSERVER_BIN=target/debug/mlserver python docs/.site/recording.py`.

The picture is an SVG that plays by itself, as a browser shows it. It needs `pip install pyte`, which emulates the terminal.
"""

import fcntl
import os
import pty
import random
import struct
import subprocess
import tempfile
import termios
import time
from html import escape
from pathlib import Path

import pyte
from screenshots import BINARY, ROOT, served

COLUMNS, LINES = 138, 8
INTERVAL = 0.3
ROWS = 24_000
CHARACTER, LINE = 8.4, 19
COMMAND = "mlserver infer -u {} -m iris-xgboost -i flowers.csv -o classes.csv --rate 6000"


def typed(command):
    """Yields what a prompt shows while somebody types."""
    for end in range(0, len(command) + 1, 4):
        yield "$ " + command[:end]
    yield "$ " + command


def record(command, folder):
    """Returns the screens of a run, one in each interval, and the first lines of its output."""
    shown = command.format("localhost:8080")
    screens = [[line] for line in typed(shown)]
    with served("examples/quickstart") as address:
        screen = pyte.Screen(COLUMNS, LINES)
        stream = pyte.ByteStream(screen)
        stream.feed(f"$ {shown}\r\n".encode())
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        real = command.format(address.removeprefix("http://")).replace("mlserver", str(BINARY), 1)
        process = subprocess.Popen(real.split(), cwd=folder, stdout=follower, stderr=follower, close_fds=True)
        os.close(follower)
        os.set_blocking(leader, False)
        while True:
            time.sleep(INTERVAL)
            ended = process.poll() is not None
            try:
                while data := os.read(leader, 65536):
                    stream.feed(data)
            except OSError:
                pass
            port = address.rpartition(":")[2]
            screens.append([line.rstrip().replace(f"127.0.0.1:{port}", "localhost:8080") for line in screen.display])
            if ended:
                assert process.returncode == 0, screens[-1]
                break
    lines = [line for line in screens[-1] if line]
    head = Path(folder, "classes.csv").read_text().splitlines()[:3]
    screens.append([*lines, "$ head -3 classes.csv", *head])
    return screens


def svg(screens):
    """Returns an animated picture: each screen is visible for one interval, the last one longer."""
    hold = 10
    total = (len(screens) + hold) * INTERVAL
    width, height = COLUMNS * CHARACTER + 24, LINES * LINE + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"',
        f'aria-label="{escape(COMMAND)}">',
        "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d4d4d4;white-space:pre}",
        f"g{{visibility:hidden;animation:s {total:.1f}s step-end infinite}}",
        "g:last-of-type{visibility:visible}",
        "@media(prefers-reduced-motion:reduce){g{animation:none}}",
    ]
    for index in range(len(screens)):
        start = 100 * index / (len(screens) + hold)
        end = 100 if index == len(screens) - 1 else 100 * (index + 1) / (len(screens) + hold)
        steps = f"0%{{visibility:hidden}}{start:.2f}%{{visibility:visible}}{end:.2f}%{{visibility:hidden}}"
        parts.append(f"@keyframes s{index}{{{steps}}}")
        parts.append(f"#s{index}{{animation-name:s{index}}}")
    parts.append(f'</style><rect width="{width:.0f}" height="{height}" rx="6" fill="#1e1e1e"/>')
    for index, lines in enumerate(screens):
        texts = [
            f'<text x="12" y="{26 + number * LINE}">{escape(line)}</text>'
            for number, line in enumerate(lines)
            if line.strip()
        ]
        parts.append(f'<g id="s{index}">{"".join(texts)}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rows = (",".join(f"{random.uniform(0.1, 7):.1f}" for _ in range(4)) for _ in range(ROWS))
        header = "sepal_length,sepal_width,petal_length,petal_width\n"
        Path(folder, "flowers.csv").write_text(header + "\n".join(rows) + "\n")
        picture = svg(record(COMMAND, folder))
    path = ROOT / "docs/assets/infer.svg"
    path.write_text(picture)
    assert path.stat().st_size < 60_000, path.stat()


if __name__ == "__main__":
    main()
